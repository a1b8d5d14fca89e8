// SPDX-License-Identifier: BSD-2-Clause
// The counters of FI_HEDDLE_STATS: their keys in a line of JSON, and their texts in a table. The
// provider writes them; the command `heddle` reads them and adds up those of a job.
#pragma once

#include <string_view>

namespace heddle::provider {

struct StatName {
    const char *key, *text;
    bool is_peak = false;  // a job has the largest value of its processes, not the sum
};

// A text is complete without the line above it, since lines whose value is zero are left out.
inline constexpr StatName kStatNames[] = {
    {"endpoints", "endpoints"},
    {"contexts", "contexts"},
    {"qps", "queue pairs"},
    {"cqs", "completion queues"},
    {"mrs", "memory regions"},
    {"uars", "UAR pages"},
    {"uuars", "doorbell registers"},
    {"uuars_used", "doorbell registers in use"},
    {"bytes", "bytes of the driver"},
    {"domain_locks", "locks of domains taken by calls"},
    {"register_locks", "locks of doorbell registers taken"},
    {"connections", "connections"},
    {"inlined", "messages sent inline"},
    {"eager", "messages sent eagerly"},
    {"gathered", "eager messages sent without a copy"},
    {"by_ring", "messages written to a peer's ring"},
    {"by_shm", "messages sent by shared memory"},
    {"rendezvous", "messages sent by rendezvous"},
    {"received", "messages received"},
    {"from_rings", "messages received by a ring"},
    {"rings", "rings for peers that talk much"},
    {"from_shm", "messages received by shared memory"},
    {"shm_peers", "peers that send by shared memory"},
    {"read_by_process", "messages read from a peer's process"},
    {"striped", "messages read over several rails"},
    {"stripe_bytes", "bytes read over other rails"},
    {"stripes_again", "stripes read again, as a rail failed"},
    {"unexpected", "unexpected messages"},
    {"unexpected_bytes_peak", "unexpected bytes at most, endpoint", true},
    {"rma", "RMA operations"},
    {"rma_copied", "small RMA operations, copied"},
    {"rma_direct", "small RMA operations, not copied"},
    {"unregistered", "operations and messages copied, as memory could not be registered"},
    {"atomics", "atomic operations"},
    {"reuse_uses", "uses of small buffers, looked up"},
    {"reuse_frequent", "uses of small registered buffers"},
    {"reuse_registered", "small buffers registered"},
    {"reuse_refused", "small buffers not registered"},
    {"reuse_gone", "small buffers ended by an unmapping"},
    {"reuse_aged", "small buffers ended for lack of use"},
    {"reuse_entries", "reuse table entries"},
    {"reuse_used", "reuse table entries in use"},
    {"reuse_rests", "reuse table epochs at rest"},
    {"registrations", "memory registrations"},
    {"registrations_kept", "memory registrations kept after use"},
    {"registration_hits", "operations on registered memory"},
    {"registration_evictions", "registrations ended for lack of room"},
    {"registration_invalidations", "registrations ended by an unmapping"},
    {"tuples_asked", "tuple queues requested"},
    {"tuples_opened", "tuple queues opened by peers"},
    {"tuple_messages", "messages sent to tuple queues"},
    {"tuple_blocking", "tuple messages before their receive"},
    {"tuple_held", "tuple messages held for lack of a QP"},
    {"tuple_copied", "tuple messages copied"},
    {"tuple_again", "tuple messages sent again otherwise"},
    {"tuple_queues", "tuple queues opened for peers"},
    {"tuple_queues_peak", "tuple queues at once, endpoint", true},
    {"tuple_posted", "receives posted to tuple queues"},
    {"tuple_received", "receives done by tuple queues"},
    {"damaged", "invalid messages dropped"},
};

// Returns the text of a key, or the key itself if it is not in the table.
constexpr std::string_view stat_text(std::string_view key) noexcept {
    for (const StatName& each : kStatNames)
        if (key == each.key) return each.text;
    return key;
}

}  // namespace heddle::provider
