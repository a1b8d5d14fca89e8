// SPDX-License-Identifier: BSD-2-Clause
// Which calls of sched_yield() by a thread reach the kernel. A thread that has its processor for
// itself gains nothing by them: they take 0.1 us, in a virtual machine up to 0.5 us, as much as the
// library and the provider take for a message. Where the kernel gave the processor to another task
// it took longer. Then all calls go there again, until many in a row were short.
#pragma once

#include <cstdint>

namespace heddle::yield {

class YieldPolicy {
public:
    // Calls that return at once after one that reached the kernel. A loop that polls takes 0.1 us
    // and more for a round, so another task waits for some microseconds at most.
    static constexpr unsigned kSkipped = 63;
    // After a call that took this long another task has run: two switches of the processor take
    // longer than that. So many calls in a row must be shorter before any is skipped again.
    static constexpr std::uint64_t kUsedNs = 1500;
    static constexpr unsigned kShortInARow = 64;

    // The thread yields. True: the call returns at once. False: it goes to the kernel, and
    // note() gets how long that took.
    bool may_skip() noexcept {
        if (left_ == 0) return false;
        --left_;
        return true;
    }
    void note(std::uint64_t took_ns) noexcept {
        if (took_ns >= kUsedNs)
            short_needed_ = kShortInARow;
        else if (short_needed_ != 0)
            --short_needed_;
        left_ = short_needed_ == 0 ? kSkipped : 0;
    }

private:
    unsigned left_ = 0, short_needed_ = 0;
};

}  // namespace heddle::yield
