// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/channel_objects.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/transport/channel_limits.h"
#include "verbs/dynamic_connection.h"
#include "verbs/memlock.h"

namespace heddle::protocol {

ChannelObjects::ChannelObjects(const endpoint::ThreadResources& resources, std::uint32_t receives,
                               bool direct)
    : resources_(resources) {
    make_cq(receives);
    make_srq(receives, direct);
}

void ChannelObjects::make_cq(std::uint32_t receives) {
    ibv_context* const context = shared().context.get();
    events_.reset(ibv_create_comp_channel(context));
    if (!events_) throw VerbsError("a completion channel", errno, "raise `ulimit -n`");
    ::fcntl(events_->fd, F_SETFL, ::fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
    ibv_device_attr device{};
    if (const int error = ibv_query_device(context, &device))
        throw VerbsError("the limits of the device", error);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe =
        std::min(receives + kSendEntries, static_cast<std::uint32_t>(std::max(device.max_cqe, 0)));
    const std::uint32_t fewest = receives + 2 * kReservedEntries;
    if (attributes.cqe < fewest)
        throw VerbsError("a completion queue of " + std::to_string(fewest) +
                             " entries, where the device has " + std::to_string(device.max_cqe),
                         EINVAL, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller");
    attributes.channel = events_.get();
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    if (resources_.parent) {  // one thread at a time: libmlx5 need not lock
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if (ibv_cq_ex* extended = ibv_create_cq_ex(context, &attributes))
            cq_.reset(ibv_cq_ex_to_cq(extended));
    }
    if (!cq_)
        cq_.reset(
            ibv_create_cq(context, static_cast<int>(attributes.cqe), nullptr, events_.get(), 0));
    if (!cq_)
        throw VerbsError("a completion queue of " + std::to_string(attributes.cqe) + " entries",
                         errno,
                         verbs::memlock_hint(errno, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller"));
    HEDDLE_ASSERT(static_cast<std::uint32_t>(cq_->cqe) >= attributes.cqe,
                  "a CQ has at least the entries that were asked for");
}

void ChannelObjects::make_srq(std::uint32_t receives, bool direct) {
    ibv_srq_init_attr_ex attributes{};
    // The driver keeps an entry more than it is asked for, and rounds up.
    attributes.attr.max_wr = receives - (direct ? 1 : 0);
    attributes.attr.max_sge = 1;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_BASIC;
    attributes.pd = shared().pd.get();
    if (xrc()) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        attributes.srq_type = IBV_SRQT_XRC;
        attributes.xrcd = shared().xrcd.get();
        attributes.cq = cq_.get();
    }
    srq_.reset(ibv_create_srq_ex(shared().context.get(), &attributes));
    if (!srq_)
        throw VerbsError("a shared receive queue of " + std::to_string(receives), errno,
                         verbs::memlock_hint(errno, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller"));
    if (xrc() && ibv_get_srq_num(srq_.get(), &srqn_) != 0)
        throw VerbsError("the number of a shared receive queue", errno);
}

void ChannelObjects::make_dc_target(std::uint64_t key,
                                    const verbs::ConnectionAttributes& attributes) {
    HEDDLE_ASSERT(!dc_target_ && !xrc(), "a channel has one target");
    dc_target_ = verbs::create_target(shared().pd.get(), cq(), srq(), key, attributes);
}

verbs::QueuePair ChannelObjects::make_send_queue(ibv_qp_cap& capabilities) const noexcept {
    if (dc_target_) return verbs::create_initiator(resources_.qp_pd(), cq(), capabilities);
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = cq();
    attributes.cap = capabilities;
    attributes.pd = resources_.qp_pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (xrc()) {
        attributes.qp_type = IBV_QPT_XRC_SEND;
    } else {
        attributes.qp_type = IBV_QPT_RC;
        attributes.recv_cq = cq();
        attributes.srq = srq();
    }
    verbs::QueuePair qp(ibv_create_qp_ex(shared().context.get(), &attributes));
    if (qp) capabilities = attributes.cap;
    return qp;
}

}  // namespace heddle::protocol
