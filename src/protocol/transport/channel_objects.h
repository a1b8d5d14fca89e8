// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects that all connections of a channel share: a completion channel, a CQ, and an
// SRQ, of one thread's resources.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "endpoint/thread_resources.h"
#include "verbs/connection.h"
#include "verbs/handles.h"

namespace heddle::protocol {

class ChannelObjects {
public:
    // The SRQ has `receives` entries, the CQ these and as many more for WRs as the device can, up
    // to kSendEntries. `direct`: the SRQ is posted to by the direct path. Throws VerbsError.
    ChannelObjects(const endpoint::ThreadResources& resources, std::uint32_t receives, bool direct);

    const endpoint::ThreadResources& resources() const noexcept { return resources_; }
    const endpoint::SharedContext& shared() const noexcept { return *resources_.shared; }
    bool xrc() const noexcept { return shared().xrcd != nullptr; }
    ibv_comp_channel* events() const noexcept { return events_.get(); }
    ibv_cq* cq() const noexcept { return cq_.get(); }
    ibv_srq* srq() const noexcept { return srq_.get(); }
    std::uint32_t srqn() const noexcept { return srqn_; }  // 0: not by XRC
    // By DC: the number of what all peers send to; 0 before make_dc_target(), or without DC.
    std::uint32_t dc_target() const noexcept { return dc_target_ ? dc_target_->qp_num : 0; }
    // Throws VerbsError.
    void make_dc_target(std::uint64_t key, const verbs::ConnectionAttributes& attributes);
    // A QP to send by, in the state RESET; by DC, once there is a target, an initiator. It has at
    // least what `capabilities` says, which says then what it has. nullptr and errno: none.
    verbs::QueuePair make_send_queue(ibv_qp_cap& capabilities) const noexcept;

private:
    void make_cq(std::uint32_t receives);
    void make_srq(std::uint32_t receives, bool direct);

    const endpoint::ThreadResources& resources_;
    verbs::CompletionChannel events_;
    verbs::CompletionQueue cq_;
    verbs::SharedReceiveQueue srq_;
    std::uint32_t srqn_ = 0;
    verbs::QueuePair dc_target_;
};

}  // namespace heddle::protocol
