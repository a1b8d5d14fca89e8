// SPDX-License-Identifier: BSD-2-Clause
// Executing a send queue: see requester.cc.
#pragma once

#include <algorithm>

#include "softhca/engine/local.h"

namespace softhca::engine {

enum class Runner : std::uint8_t {
    kPoster,    // the thread that posted: leaves large copies to others, never waits
    kPoller,    // a thread that polls its empty CQ: has nothing better to do
    kProgress,  // the progress thread
};

enum class Ran : std::uint8_t {
    kIdle,     // everything posted has been executed (or the QP may not send now)
    kPending,  // something waits: a timer, a lock, another runner
};

// Runs the send queue of a QP of this process until it is empty or waits. Any thread may call it,
// inside an epoch. One thread executes. The others return at once, and that thread sees what they
// have posted.
Ran run_send_queue(device::Fabric& fabric, LocalQp& local, Runner runner) noexcept;

// The same for a poster that holds the run lock and executed the entry at `counter` by the fast
// path.
struct FastPathRequest;
Ran run_after_fast_path(device::Fabric& fabric, LocalQp& local, device::QueuePair& qp,
                        std::uint16_t counter, const FastPathRequest& request) noexcept;

// Posted and not yet executed?
bool has_work(const device::QueuePair& qp, const LocalQp& local) noexcept;

// Payload from this size on is left to the progress thread or to a poller, so that the poster can
// compute meanwhile.
inline constexpr std::uint64_t kDeferBytes = 32ULL * 1024;
constexpr std::uint64_t most_at_once(bool defers) noexcept {
    return defers ? kDeferBytes - 1 : device::kMaxMessage;
}
inline std::uint64_t most_by_fast_path(const LocalQp& local, bool defers) noexcept {
    return std::min(most_at_once(defers), local.most_by_fast_path);
}

}  // namespace softhca::engine
