// SPDX-License-Identifier: BSD-2-Clause
// What a thread sleeps on until something comes by a channel: an epoll instance that watches
// completion channels, an event by which other threads wake the wait set, and a timer.
#pragma once

#include <chrono>

namespace heddle::protocol {

// One thread at a time, except wake().
class WaitSet {
public:
    // Throws VerbsError.
    WaitSet();
    ~WaitSet();
    WaitSet(const WaitSet&) = delete;
    WaitSet& operator=(const WaitSet&) = delete;

    // Readable when there is something to look at.
    int fd() const noexcept { return epoll_; }
    // fd() is readable while `fd` is, too; it may be watched already. Throws VerbsError.
    void watch(int fd);
    // fd() is readable after that time, too, until the next clear(). Throws VerbsError.
    void wake_after(std::chrono::nanoseconds time);
    // Sleepers look again. Any thread.
    void wake() noexcept;
    // Takes away what wake() and the timer have made readable.
    void clear() noexcept;

private:
    int epoll_, wake_;
    int timer_ = -1;  // once it is needed
};

}  // namespace heddle::protocol
