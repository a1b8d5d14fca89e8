// SPDX-License-Identifier: BSD-2-Clause
// Sleeping until something comes by a channel, and being woken.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/transport/channel_poll.h"

namespace heddle::protocol {

void Channel::watch(int fd) {
    HEDDLE_ASSERT(epoll_ >= 0 && fd >= 0);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
        throw VerbsError("waiting for a completion channel", errno);
}

bool Channel::arm() {
    disarm();
    if (direct_cq_)
        direct_cq_->arm(false);
    else
        verbs_cq_->arm(false);
    // What came before it was armed raises no event.
    return poll() == 0 && !changed_.load(std::memory_order_acquire);
}

void Channel::disarm() {
    std::uint64_t count;
    while (::read(wake_, &count, sizeof count) > 0) {
    }
    // One that has yet to come stays: another thread that sleeps here may have set it.
    while (timer_ >= 0 && ::read(timer_, &count, sizeof count) > 0) {
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(events_.get(), &cq, &context) == 0) {
        HEDDLE_ASSERT(cq != nullptr, "an event names its CQ");
        if (direct_cq_ && cq == cq_.get()) direct_cq_->event_read();
        ibv_ack_cq_events(cq, 1);
    }
}

void Channel::wake_after(std::chrono::nanoseconds time) {
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

void Channel::wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

}  // namespace heddle::protocol
