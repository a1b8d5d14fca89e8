// SPDX-License-Identifier: BSD-2-Clause
// What threads do with their endpoints, as the model needs it: which thread drives which queue pair
// through which register, and the rhythm of posts and polls.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace heddle::predict {

// A queue pair that a thread posts to.
struct QueueUse {
    std::uint32_t qp = 0, cq = 0;            // cq: of its sends
    double blueflame_extra = 0;              // ns, by the placement of its uUAR
    std::optional<std::uint32_t> uuar_lock;  // of a uUAR that other threads drive, too
    bool takes_lock = false;                 // although no other thread uses it
    std::uint32_t depth = 0;  // of its send queue, in a recorded run; 0: nothing waits for room
};

// One thing that a thread of a recorded run did, `times` times one after the other.
struct Step {
    enum class Kind { kPost, kWait, kBarrier } kind = Kind::kPost;
    std::uint32_t times = 1;
    std::uint32_t queue = 0;                              // kPost: of ThreadPlan::queues
    std::uint32_t wqes = 1, payload_reads = 0, cqes = 0;  // kPost; kWait: own cqes it waits for
    std::uint32_t payload_line = 0;
    std::uint32_t cq = 0;
    std::uint32_t group = 0;  // kBarrier
    bool blueflame = false;
};

struct ThreadPlan {
    std::vector<QueueUse> queues;    // in the order in which it posts
    std::uint32_t cq = 0;            // that it polls
    std::uint32_t payload_line = 0;  // cache line of the payload
    std::uint32_t group = 0;         // threads that meet at a barrier
    std::vector<Step> steps;         // of a recorded run; else it does what the workload says
};

// Rows of a process in the stencil of figure 14. Its threads share them, and each row goes to two
// neighbours.
inline constexpr std::uint32_t kStencilRows = 512;

struct Workload {
    std::vector<ThreadPlan> threads;
    std::uint32_t post_list = 32;     // WQEs to a post
    std::uint32_t signal_every = 64;  // WQEs to a CQE
    std::uint32_t depth = 128;        // of a send queue
    bool inlined = true;
    // 0: a loop that fills the queue and polls. Else each iteration posts so many messages on each
    // queue, waits for all, and meets the group at a barrier.
    std::uint32_t rows = 0;
    double message_extra = 0;  // ns of the processor for each message

    bool is_recorded() const { return !threads.empty() && !threads.front().steps.empty(); }
};

}  // namespace heddle::predict
