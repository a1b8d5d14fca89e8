// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/wait_set.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::protocol {

WaitSet::WaitSet()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    try {
        if (wake_ < 0 || epoll_ < 0)
            throw VerbsError("file descriptors to sleep on", errno, "raise `ulimit -n`");
        watch(wake_);
    } catch (...) {
        ::close(wake_);
        ::close(epoll_);
        throw;
    }
}

WaitSet::~WaitSet() {
    ::close(epoll_);
    ::close(wake_);
    if (timer_ >= 0) ::close(timer_);
}

void WaitSet::watch(int fd) {
    HEDDLE_ASSERT(epoll_ >= 0 && fd >= 0);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
        throw VerbsError("waiting for a completion channel", errno);
}

void WaitSet::wake_after(std::chrono::nanoseconds time) {
    HEDDLE_ASSERT(time.count() > 0, "a time of zero would disarm the timer");
    if (timer_ < 0) {
        const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (timer < 0) throw VerbsError("a timer", errno, "raise `ulimit -n`");
        timer_ = timer;
        watch(timer_);
    }
    itimerspec once{};
    once.it_value.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000);
    once.it_value.tv_nsec = static_cast<long>(time.count() % 1'000'000'000);
    ::timerfd_settime(timer_, 0, &once, nullptr);
}

void WaitSet::wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

void WaitSet::clear() noexcept {
    std::uint64_t count;
    while (::read(wake_, &count, sizeof count) > 0) {
    }
    // One that has yet to come stays: another thread that sleeps here may have set it.
    while (timer_ >= 0 && ::read(timer_, &count, sizeof count) > 0) {
    }
}

}  // namespace heddle::protocol
