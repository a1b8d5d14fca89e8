// SPDX-License-Identifier: BSD-2-Clause
// Sleeping until something arrives: see sleeper.h.
#include "provider/sleeper.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <map>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "provider/domain.h"

namespace heddle::provider {

int Deadline::left_ms() const noexcept {
    if (endless_) return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(at_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}
Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Descriptor make_epoll() {
    Descriptor fd(epoll_create1(EPOLL_CLOEXEC));
    if (!fd.open()) throw VerbsError("an epoll file descriptor to sleep on", errno);
    return fd;
}
Descriptor make_event() {
    Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd.open()) throw VerbsError("an eventfd to sleep on", errno);
    return fd;
}
void set_event(int fd) noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}
void clear_event(int fd) noexcept {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
}
void watch(int epoll, int fd) {
    HEDDLE_ASSERT(epoll >= 0 && fd >= 0);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        throw VerbsError("a file descriptor to sleep on", errno);
}
void unwatch(int epoll, int fd) noexcept { epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr); }
void wait_readable(int fd, int timeout_ms) noexcept {
    pollfd wanted{fd, POLLIN, 0};
    poll(&wanted, 1, timeout_ms);
}

void Sleepers::look() noexcept {
    for (Sleeper* each : all)
        each->look();
}

std::shared_ptr<Sleepers> Sleepers::of(std::recursive_mutex* shared) {
    if (shared == nullptr) return std::make_shared<Sleepers>();
    static std::mutex mutex;
    // Never destroyed, since programs may use MPI in exit handlers.
    static auto& known = *new std::map<std::recursive_mutex*, std::weak_ptr<Sleepers>>;
    const std::scoped_lock lock(mutex);
    std::erase_if(known, [](const auto& each) { return each.second.expired(); });
    std::shared_ptr<Sleepers> found = known[shared].lock();
    if (found == nullptr) known[shared] = found = std::make_shared<Sleepers>();
    return found;
}

Sleeper::Sleeper(Domain& domain, fi_wait_obj kind, Ready ready, const void* owner)
    : domain_(domain), kind_(kind), ready_(ready), owner_(owner) {
    if (kind == FI_WAIT_NONE) return;
    event_ = make_event();
    epoll_ = make_epoll();
    watch(epoll_.get(), event_.get());
    watch(epoll_.get(), domain.wait_fd());
    domain.sleepers->all.push_back(this);
}

Sleeper::~Sleeper() {
    if (kind_ == FI_WAIT_NONE) return;
    HEDDLE_ASSERT(!armed() || domain_.sleepers->armed != 0);
    if (armed()) --domain_.sleepers->armed;
    std::erase(domain_.sleepers->all, this);
}

int Sleeper::control(int command, void* argument) const noexcept {
    switch (command) {
        case FI_GETWAIT:
            if (kind_ != FI_WAIT_FD) return -FI_ENODATA;
            *static_cast<int*>(argument) = fd();
            return 0;
        case FI_GETWAITOBJ:
            *static_cast<fi_wait_obj*>(argument) = kind_;
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

bool Sleeper::prepare() {
    HEDDLE_ASSERT(possible(), "this object has no wait object");
    clear_event(event_.get());  // clears a wake(), too
    set_ = false;
    return domain_.arm();
}

void Sleeper::watched() noexcept {
    HEDDLE_ASSERT(possible());
    if (!armed()) ++domain_.sleepers->armed;
    watched_ = true;
}
void Sleeper::enter() noexcept {
    HEDDLE_ASSERT(possible());
    if (!armed()) ++domain_.sleepers->armed;
    ++sleeping_;
    HEDDLE_ASSERT(domain_.sleepers->armed <= domain_.sleepers->all.size());
}
void Sleeper::leave() noexcept {
    HEDDLE_ASSERT(sleeping_ != 0 && domain_.sleepers->armed != 0, "left twice");
    --sleeping_;
    if (!armed()) --domain_.sleepers->armed;
}

void Sleeper::set() noexcept {
    set_event(event_.get());
    set_ = true;
    if (!watched_) return;
    HEDDLE_ASSERT(domain_.sleepers->armed != 0);
    watched_ = false;
    if (!armed()) --domain_.sleepers->armed;
}

void Sleeper::wake() noexcept {
    if (event_.open()) set_event(event_.get());
}

}  // namespace heddle::provider
