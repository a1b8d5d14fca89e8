// SPDX-License-Identifier: BSD-2-Clause
// What a run record says of a thread (docs/reference/run-record.md): a doorbell that it rang,
// completions that it polled, or a barrier that it reached.
#pragma once

#include <cstdint>

namespace softhca::record {

enum class EventKind : std::uint8_t { kPost, kPoll, kBarrier };

inline constexpr std::int64_t kNoLine = -1;  // all payload is inline, or there is none

struct Event {
    EventKind kind = EventKind::kBarrier;
    bool blueflame = false;       // post
    std::uint32_t object = 0;     // QP number, CQ number, or number of the barrier
    std::uint32_t entries = 0;    // post: WQEs; poll: CQEs
    std::uint32_t inlines = 0;    // post: WQEs with inline data
    std::uint32_t signaled = 0;   // post: WQEs that ask for a CQE
    std::uint32_t reads = 0;      // post: READs and atomics, whose data come back
    std::uint64_t bytes = 0;      // post: payload of all WQEs
    std::int64_t line = kNoLine;  // post: the first cache line of payload outside the WQEs

    bool operator==(const Event&) const = default;
};

// Equal events, one after the other.
struct EventRun {
    Event event;
    std::uint64_t times = 0;

    bool operator==(const EventRun&) const = default;
};

}  // namespace softhca::record
