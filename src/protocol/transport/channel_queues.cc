// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects of a channel: its CQ, its SRQ, and a QP for each connection.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/channel_limits.h"
#include "verbs/connection.h"
#include "verbs/memlock.h"

namespace heddle::protocol {

void Channel::make_cq() {
    ibv_context* const context = resources_->shared->context.get();
    events_.reset(ibv_create_comp_channel(context));
    if (!events_) throw VerbsError("a completion channel", errno, "raise `ulimit -n`");
    ::fcntl(events_->fd, F_SETFL, ::fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
    watch(events_->fd);
    watch(wake_);
    ibv_device_attr device{};
    if (const int error = ibv_query_device(context, &device))
        throw VerbsError("the limits of the device", error);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = std::min(most_receives_ + kSendEntries,
                              static_cast<std::uint32_t>(std::max(device.max_cqe, 0)));
    const std::uint32_t fewest = most_receives_ + 2 * kReservedEntries;
    if (attributes.cqe < fewest)
        throw VerbsError("a completion queue of " + std::to_string(fewest) +
                             " entries, where the device has " + std::to_string(device.max_cqe),
                         EINVAL, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller");
    attributes.channel = events_.get();
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    if (resources_->parent) {  // one thread at a time: libmlx5 need not lock
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
    // other() publishes what it has read at the latest after kPollAtOnce entries.
    send_entries_ = static_cast<std::uint32_t>(cq_->cqe) - most_receives_ - kPollAtOnce;
    HEDDLE_ASSERT(send_entries_ > kReservedEntries, "find_room() can give some of them away");
    cq_room_ = send_entries_;
}

void Channel::make_srq(bool direct) {
    ibv_srq_init_attr_ex attributes{};
    // The driver keeps an entry more than it is asked for, and rounds up.
    attributes.attr.max_wr = most_receives_ - (direct ? 1 : 0);
    attributes.attr.max_sge = 1;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_BASIC;
    attributes.pd = resources_->shared->pd.get();
    if (xrc()) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        attributes.srq_type = IBV_SRQT_XRC;
        attributes.xrcd = resources_->shared->xrcd.get();
        attributes.cq = cq_.get();
    }
    srq_.reset(ibv_create_srq_ex(resources_->shared->context.get(), &attributes));
    if (!srq_)
        throw VerbsError("a shared receive queue of " + std::to_string(most_receives_), errno,
                         verbs::memlock_hint(errno, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller"));
    if (xrc() && ibv_get_srq_num(srq_.get(), &srqn_) != 0)
        throw VerbsError("the number of a shared receive queue", errno);
}

// With as much inline data as the options want, or as the device can: libmlx5 answers EINVAL where
// an entry would be longer than the device's longest (mlx5_calc_sq_size).
verbs::QueuePair Channel::make_send_queue() {
    for (;; asked_inline_ /= 2) {
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = cq_.get();
        attributes.cap.max_send_wr = options_.send_depth;
        attributes.cap.max_send_sge = 3;  // header, data, a ring's tail
        attributes.cap.max_inline_data = asked_inline_;
        attributes.pd = resources_->qp_pd();
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        if (xrc()) {
            attributes.qp_type = IBV_QPT_XRC_SEND;
        } else {
            attributes.qp_type = IBV_QPT_RC;
            attributes.recv_cq = cq_.get();
            attributes.srq = srq_.get();
        }
        verbs::QueuePair qp(ibv_create_qp_ex(resources_->shared->context.get(), &attributes));
        if (!qp && errno == EINVAL && asked_inline_ != 0) continue;
        if (!qp) return qp;
        HEDDLE_ASSERT(max_inline_ == 0 || attributes.cap.max_inline_data <= max_inline_,
                      "what fits a new QP fits those before it");
        max_inline_ = attributes.cap.max_inline_data;
        inline_end_ = max_inline_ < kHeaderRoom
                          ? 0
                          : std::min(options_.inject_bytes, max_inline_ - kHeaderRoom) + 1;
        return qp;
    }
}

void Channel::make_qp(Connection& connection, const EndpointAddress& from) {
    connection.qp_ = make_send_queue();
    if (!connection.qp_)
        throw VerbsError("a queue pair for endpoint " + std::to_string(from.endpoint), errno,
                         verbs::memlock_hint(errno,
                                             "the device has no more, or FI_HEDDLE_SEND_DEPTH is "
                                             "more than it can"));
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = verbs::kPort;
    if (const int error =
            ibv_modify_qp(connection.qp_.get(), &init,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        throw VerbsError("taking a queue pair to INIT", error);
    connection.sent_mask_ = std::min(std::bit_ceil(options_.send_depth), kFewWorks) - 1;
    connection.sent_ = std::make_unique<Connection::Record[]>(connection.sent_mask_ + 1);
    if (direct_cq_) {
        connection.direct_.emplace(connection.qp_.get(), false, max_inline_,
                                   resources_->register_shared(), options_.send_depth);
        connection.direct_->count_ids_from(std::uint64_t{connection.index_} << 32);
        direct_cq_->add(*connection.direct_);
    } else {
        connection.verbs_.emplace(connection.qp_.get(), 1);
    }
}

}  // namespace heddle::protocol
