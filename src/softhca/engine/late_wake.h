// SPDX-License-Identifier: BSD-2-Clause
// Large copies for which the progress thread is not woken at once. Where all processors are busy,
// the thread that is woken takes the processor of the thread that posted. That one mostly polls
// next, and would have made the copy itself. Both switches of a processor (2 us) are then for
// nothing: a copy of 64 KiB takes 4 us.
//
// So an operation that was deferred because it is large waits for a poll, if the progress thread
// last ran on the poster's processor, and looks after the list by itself: it sleeps for kWatch,
// then twice as long each time, up to kLongestWatch, until kWatchFor after the last such operation.
// If it has to take one from the list, it begins with kWatch again. In a virtual machine each of
// these wakes takes the program's processor for up to 50 us.
//
// On a processor of its own the thread is for a program that computes after it has posted. A
// program that polls at once makes the copy before the thread is awake: the wake alone takes as
// long as a copy of 32 KiB. So the operation waits for a poll there, too, if those before mostly
// were taken by a poll within kSoon. A program that computes for once then has up to
// kLongestWatch less of its copy done meanwhile, and the thread is woken for the next ones.
//
// No operation waits whose completion the program will sleep for.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/base/options.h"
#include "softhca/device/fabric.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

class LateWake {
public:
    static constexpr std::uint64_t kWatch = 100'000, kLongestWatch = 1'600'000,
                                   kWatchFor = 2'000'000, kSoon = 5'000;  // ns
    // A poll that takes an operation soon adds one to a number, any other taker takes off kLate.
    // From kMostly on a poll is expected.
    static constexpr int kLate = 4, kMostly = 8, kMost = 16;

    // The calling thread has put this QP on the list. True: it need not wake the progress thread.
    static bool may_wait(device::Fabric& fabric, const LocalQp& local) noexcept {
        if (local.waiting != WaitReason::kDeferred || local.engine != EnginePolicy::kHybrid)
            return false;
        deferred_at_.store(device::now_ns(), std::memory_order_relaxed);
        // The thread ends its watch before its last look at the list: it sees this QP there, or we
        // see that it does not watch.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return watches_.load(std::memory_order_seq_cst) &&
               (is_on_threads_processor() || mostly_polls_soon()) &&
               !is_armed(fabric, fabric.segment().qps[local.index].send_cq);
    }
    // A thread that polls, or the progress thread, has taken a deferred operation off the list.
    static void taken_by_poll(std::uint64_t now) noexcept;
    static void taken_by_thread() noexcept;

    // The progress thread, after it has looked at the list, before it sleeps until `deadline`.
    // False: it has to look once more first.
    static bool may_sleep(std::uint64_t now, std::uint64_t& deadline) noexcept;
    static void forget_after_fork() noexcept;

private:
    static bool is_on_threads_processor() noexcept;
    static bool mostly_polls_soon() noexcept {
        return polls_soon_.load(std::memory_order_relaxed) >= kMostly;
    }
    static void count_late() noexcept;

    // These are of the process. The progress thread looks at the list by itself; it writes both.
    static inline std::atomic<bool> watches_{false};
    static inline std::atomic<int> threads_processor_{-1};
    static inline std::uint64_t watch_ = kWatch;  // of the progress thread: its next sleep
    // When there was the last such operation; now_ns(). Any thread writes it, with no order: a lost
    // time ends the watch early.
    static inline std::atomic<std::uint64_t> deferred_at_{0};
    // 0 to kMost. Any thread writes it, with no order: one that is lost costs a wake more or less.
    static inline std::atomic<int> polls_soon_{0};
};

}  // namespace softhca::engine
