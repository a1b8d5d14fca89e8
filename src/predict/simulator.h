// SPDX-License-Identifier: BSD-2-Clause
// The timing model: an event simulation of threads that post to an mlx5 adapter and poll. Threads
// pay for posts and polls; a lock that another thread had last takes longer, and goes to one of
// those that wait for it. Each queue pair has a serial engine, payloads of one cache line are read
// one after the other, and all messages share one link. A CQE can be seen a fixed time after its
// message has left.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "predict/machine.h"
#include "predict/workload.h"

namespace heddle::predict {

// What the simulation did once it had warmed up.
struct Counts {
    std::uint64_t messages = 0;  // completed
    std::uint64_t posts = 0, wqes = 0, blueflame_posts = 0, payload_reads = 0;
    std::uint64_t polls = 0, empty_polls = 0, cqes = 0, other_cqes = 0;
    std::uint64_t qp_lock_moves = 0, cq_lock_moves = 0, uuar_lock_moves = 0;
    double qp_lock_wait = 0, cq_lock_wait = 0, uuar_lock_wait = 0;  // ns of all threads
};

// What a rate can be limited by.
enum class Resource {
    kProcessor,
    kQpLock,
    kCqLock,
    kUuarLock,
    kEngine,
    kPayloadReads,
    kCacheLine,
    kLink
};
inline constexpr std::size_t kResources = 8;
// As a user reads it: "the lock of the CQ".
std::string_view name(Resource resource);

struct Simulated {
    double per_microsecond = 0;  // messages of all threads
    Counts counts;
    // The share of the time in which it was in use; of several of a kind, the busiest.
    std::array<double, kResources> utilization = {};

    double used(Resource resource) const { return utilization[static_cast<std::size_t>(resource)]; }
    Resource busiest() const;
};

// For `horizon` ns, of which the first `warm_up` do not count. The same seed gives the same result.
// @throw std::invalid_argument if the workload has no thread, or ends in a deadlock
Simulated simulate(const Workload& workload, const Machine& machine, double horizon, double warm_up,
                   std::uint64_t seed = 7);

// For so long that one completion more or less changes the rate by some 0.5 %; a recorded run from
// its first post to its last completion.
Simulated simulate(const Workload& workload, const Machine& machine);

}  // namespace heddle::predict
