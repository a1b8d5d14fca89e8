// SPDX-License-Identifier: BSD-2-Clause
// The send queues of a channel by DC: few initiators, which its connections take turns with. A
// connection has one while something of it is under way, and nobody else posts to that one then.
// So its WRs are executed and complete in order, as on a QP of its own, and what a dead peer breaks
// is of no other peer. UCX calls that policy "dcs".
//
// One thread at a time.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "heddle/post/work_request.h"
#include "verbs/connection.h"
#include "verbs/dynamic_connection.h"
#include "verbs/handles.h"

namespace heddle::protocol {

class Connection;

// What a connection sends to.
struct DcTarget {
    verbs::AddressHandle path;
    std::uint32_t number = 0;
    std::uint64_t key = 0;
    // Its messages begin with the ticket, which is there for the device to read.
    ibv_sge ticket{};
};

// In front of each message.
struct DcPrefix {
    std::uint32_t ticket = 0, reserved = 0;
};
static_assert(sizeof(DcPrefix) == 8);

class DcInitiator {
public:
    explicit DcInitiator(verbs::QueuePair qp);
    ibv_qp* qp() const noexcept { return qp_.get(); }
    // Without a list: each WR is posted at once. A SEND gets the target's ticket in front.
    post::Posted post(const DcTarget& target, const post::WorkRequest& work) noexcept;

    Connection* holder = nullptr;
    bool is_broken = false;  // a WR has failed

private:
    verbs::QueuePair qp_;
    ibv_qp_ex* extended_;
    mlx5dv_qp_ex* driver_;
};

class DcInitiators {
public:
    // Takes QPs of verbs::create_initiator() to RTS. Throws VerbsError.
    DcInitiators(std::vector<verbs::QueuePair> queue_pairs,
                 const verbs::ConnectionAttributes& attributes);
    auto begin() noexcept { return all_.begin(); }
    auto end() noexcept { return all_.end(); }
    DcInitiator& first() noexcept { return all_.front(); }
    // After a failure: it can be posted to again. What it had must have completed. False: it
    // cannot.
    bool repair(DcInitiator& initiator) const noexcept;

    bool is_wanted = false;  // a connection has found all in use

private:
    const verbs::ConnectionAttributes attributes_;
    std::vector<DcInitiator> all_;
};

}  // namespace heddle::protocol
