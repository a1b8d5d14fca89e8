// SPDX-License-Identifier: BSD-2-Clause
// Follows linux/userfaultfd.h. Ranges are registered for write protection and none is ever
// protected: only a range that is registered so stops no page fault.
#include "memory/address_monitor.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "heddle/detail/assert.h"

namespace heddle::memory {
namespace {

// Newer than some headers.
#ifndef UFFD_USER_MODE_ONLY
constexpr int UFFD_USER_MODE_ONLY = 1;
#endif
constexpr std::uint64_t kWriteProtectsShared = 1 << 12;  // UFFD_FEATURE_WP_HUGETLBFS_SHMEM
constexpr std::uint64_t kEvents =
    UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
constexpr std::uint64_t kWriteProtects = 1 << 0;  // UFFD_FEATURE_PAGEFAULT_FLAG_WP

int new_uffd() noexcept {
    // Without privileges only what stops no fault of the kernel's is allowed, which is all we do.
    return static_cast<int>(
        ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
}

// The kernel's features, by a userfaultfd that cannot be used afterwards. Returns 0 or an errno.
int features(std::uint64_t* out) noexcept {
    const int asked = new_uffd();
    if (asked < 0) return errno;
    uffdio_api api{};
    api.api = UFFD_API;
    const int error = ::ioctl(asked, UFFDIO_API, &api) == 0 ? 0 : errno;
    ::close(asked);
    *out = api.features;
    return error;
}

bool is_enough(std::uint64_t there) noexcept {
    return (there & kEvents) == kEvents && (there & kWriteProtects) != 0;
}

void signal(int eventfd) noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(eventfd, &one, sizeof one);
}

// The thread takes no signals, which are for threads of the program. Throws std::system_error.
template <class Body>
std::thread start_thread(const char* name, Body body) {
    HEDDLE_ASSERT(std::strlen(name) < 16, "pthread_setname_np() refuses a longer name");
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try {
        thread = std::thread(body);
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace

AddressMonitor::~AddressMonitor() {
    if (is_forked()) {
        if (thread_.joinable()) thread_.detach();
        if (ending_thread_.joinable()) ending_thread_.detach();
    } else {
        // The first thread is there until the end of the second, which may unmap what is watched.
        if (ending_thread_.joinable()) {
            stop_ending_ = true;
            signal(wake_ending_);
            ending_thread_.join();
        }
        if (thread_.joinable()) {
            signal(stop_);
            thread_.join();
            ProgramThreads::forget();
        }
    }
    if (uffd_ >= 0) ::close(uffd_);  // in a forked child
    if (stop_ >= 0) ::close(stop_);
    if (wake_ending_ >= 0) ::close(wake_ending_);
}

bool AddressMonitor::is_forked() const noexcept {
    const pid_t pid = pid_;
    return pid != 0 && pid != ::getpid();
}

void AddressMonitor::add(Listener& listener) noexcept {
    // The second thread may have held its mutex when a child was forked, where it does not exist.
    std::unique_lock ending(ending_mutex_, std::defer_lock);
    if (!is_forked()) ending.lock();
    const std::scoped_lock lock(mutex_);
    for (const Listener* each = listeners_; each != nullptr; each = each->next_)
        HEDDLE_ASSERT(each != &listener, "a listener is added once");
    listener.next_ = listeners_;
    listeners_ = &listener;
}

void AddressMonitor::remove(Listener& listener) noexcept {
    std::unique_lock ending(ending_mutex_, std::defer_lock);
    if (!is_forked()) ending.lock();
    const std::scoped_lock lock(mutex_);
    Listener** at = &listeners_;
    while (*at != nullptr && *at != &listener)
        at = &(*at)->next_;
    HEDDLE_ASSERT(*at == &listener, "a listener that is removed was added");
    *at = listener.next_;
    listener.next_ = nullptr;
}

std::string AddressMonitor::why_not() {
    std::uint64_t there = 0;
    switch (const int error = features(&there)) {
        case 0:
            if (is_enough(there)) return {};
            return "the kernel's userfaultfd does not tell of memory that is unmapped";
        case EPERM:
            return "userfaultfd is refused (EPERM), as by Docker's seccomp profile: allow the "
                   "system call userfaultfd";
        case EINVAL:
        case ENOSYS:
            return "the kernel has no userfaultfd for programs without privileges: Linux 5.11 has";
        default:
            return std::string("userfaultfd: ") + std::strerror(error);
    }
}

bool AddressMonitor::open() noexcept {
    HEDDLE_ASSERT(uffd_ < 0 && stop_ < 0 && wake_ending_ < 0, "the monitor opens its files once");
    std::uint64_t there = 0;
    if (features(&there) != 0 || !is_enough(there)) return false;
    uffdio_api api{};
    const int fd = new_uffd();
    if (fd < 0) return false;
    api.api = UFFD_API;
    api.features = kEvents | (there & kWriteProtectsShared);
    if (::ioctl(fd, UFFDIO_API, &api) == 0) stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (stop_ >= 0) wake_ending_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_ < 0) {
        ::close(fd);
        return false;
    }
    uffd_ = fd;
    return true;
}

bool AddressMonitor::ready() noexcept {
    std::call_once(once_, [this] {
        if (!open()) return;
        pid_ = ::getpid();
        try {
            thread_ = start_thread("heddle-memory", [this] { run(); });
        } catch (const std::system_error&) {
            ::close(uffd_);
            uffd_ = -1;
            return;
        }
        // Without it, listeners end what is gone when they are used the next time.
        if (wake_ending_ < 0) return;
        try {
            ending_thread_ = start_thread("heddle-unpin", [this] { run_ending(); });
        } catch (const std::system_error&) {
        }
    });
    return uffd_ >= 0;
}

bool AddressMonitor::watch(std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (uffd_ < 0) return false;
    HEDDLE_ASSERT(begin < end, "a range of no pages is no range for the kernel");
    uffdio_register range{};
    range.range = {begin, end - begin};
    range.mode = UFFDIO_REGISTER_MODE_WP;
    return ::ioctl(uffd_, UFFDIO_REGISTER, &range) == 0;
}

void AddressMonitor::unwatch(std::uintptr_t begin, std::uintptr_t end) noexcept {
    HEDDLE_ASSERT(begin < end, "a range of no pages is no range for the kernel");
    for (const Listener* each = listeners_; each != nullptr; each = each->next_)
        if (each->wants(begin, end)) return;
    if (uffd_ < 0) return;
    uffdio_range range{begin, end - begin};
    ::ioctl(uffd_, UFFDIO_UNREGISTER, &range);
}

// The kernel refuses to change the protection of pages while an unmapping has begun whose event has
// not been read: fs/userfaultfd.c, userfaultfd_writeprotect(), which looks at mmap_changing before
// it looks at the range; userfaultfd_unmap_prep() counts that up with the address space locked.
// Otherwise it refuses a range of no pages with EINVAL. (Before Linux 5.14 mmap_changing is a flag,
// which the first of several threads that unmap resets.)
bool AddressMonitor::unmapping() const noexcept {
    const int uffd = uffd_;
    if (uffd < 0) return false;
    uffdio_writeprotect nothing{};
    return ::ioctl(uffd, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
}

void AddressMonitor::end_later() noexcept {
    if (ending_ || wake_ending_ < 0) return;
    ending_ = true;
    signal(wake_ending_);
}

bool AddressMonitor::wait_for_ending() noexcept {
    if (ending_mutex_.try_lock()) {
        ending_mutex_.unlock();
        return false;
    }
    const std::scoped_lock wait(ending_mutex_);
    return true;
}

// This thread may give memory back: the first thread reads that event, and waits for neither this
// thread nor ending_mutex_.
void AddressMonitor::run_ending() noexcept {
    HEDDLE_ASSERT(!is_forked() && wake_ending_ >= 0, "ready() starts the thread with its eventfd");
    const auto woken = [this](int milliseconds) {
        pollfd wake{wake_ending_, POLLIN, 0};
        return ::poll(&wake, 1, milliseconds) > 0;
    };
    while (!stop_ending_) {
        if (!woken(-1)) continue;
        std::uint64_t count;
        [[maybe_unused]] const auto bytes = ::read(wake_ending_, &count, sizeof count);
        // Programs mostly unmap several buffers, or go on with calls that end what is gone.
        while (!stop_ending_ && woken(kEndingDelayMs)) {
        }
        if (stop_ending_) return;
        {
            const std::scoped_lock lock(mutex_);
            HEDDLE_ASSERT(ending_, "only end_later() wakes the thread before it stops");
            ending_ = false;
        }
        const ProgramThreads::ServiceUnmaps unmaps;
        const std::scoped_lock lock(ending_mutex_);
        for (Listener* each = listeners_; each != nullptr; each = each->next_)
            each->end_gone();
    }
}

// This thread must not give memory back: it would wait for itself. It calls nothing that might.
void AddressMonitor::run() noexcept {
    for (;;) {
        pollfd both[] = {{uffd_, POLLIN, 0}, {stop_, POLLIN, 0}};
        if (::poll(both, 2, -1) < 0 && errno != EINTR) break;
        if (both[1].revents != 0 || both[0].revents & (POLLERR | POLLNVAL)) break;
        if (both[0].revents & POLLIN) read_events();
    }
    // This thread closes the file, as no other thread reads it: even the thread that joins this one
    // may unmap what is watched (a stack of another thread that has ended). A thread that waits
    // until its event is read goes on when the file is closed.
    const std::scoped_lock lock(mutex_);
    HEDDLE_ASSERT(uffd_ >= 0, "only this thread closes the file while it runs");
    for (Listener* each = listeners_; each != nullptr; each = each->next_)
        each->gone(0, UINTPTR_MAX);
    ::close(uffd_);
    uffd_ = -1;
}

void AddressMonitor::read_events() noexcept {
    HEDDLE_ASSERT(!changing_.load(std::memory_order_relaxed), "one thread reads events");
    changing_.store(true, std::memory_order_seq_cst);
    const std::scoped_lock lock(mutex_);
    uffd_msg messages[16];
    for (;;) {
        const ssize_t bytes = ::read(uffd_, messages, sizeof messages);
        if (bytes < static_cast<ssize_t>(sizeof *messages)) break;
        HEDDLE_ASSERT(static_cast<std::size_t>(bytes) % sizeof *messages == 0,
                      "the kernel gives whole events");
        for (std::size_t i = 0; i < static_cast<std::size_t>(bytes) / sizeof *messages; ++i) {
            const uffd_msg& message = messages[i];
            std::uintptr_t begin = 0, end = 0;
            switch (message.event) {
                case UFFD_EVENT_UNMAP:
                case UFFD_EVENT_REMOVE:
                    begin = message.arg.remove.start;
                    end = message.arg.remove.end;
                    break;
                case UFFD_EVENT_REMAP:  // memory at its new place had an UNMAP event of its own
                    begin = message.arg.remap.from;
                    end = begin + message.arg.remap.len;
                    break;
                default:
                    continue;
            }
            for (Listener* each = listeners_; each != nullptr; each = each->next_)
                each->gone(begin, end);
        }
    }
    changing_.store(false, std::memory_order_seq_cst);
}

}  // namespace heddle::memory
