// SPDX-License-Identifier: BSD-2-Clause
// The send queue of each connection of a channel.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/channel_limits.h"
#include "verbs/connection.h"
#include "verbs/memlock.h"

namespace heddle::protocol {

// With as much inline data as the options want, or as the device can: libmlx5 answers EINVAL where
// an entry would be longer than the device's longest (mlx5_calc_sq_size). nullptr and errno: there
// is none.
verbs::QueuePair Channel::make_send_queue(std::uint32_t depth) {
    const std::uint32_t prefix = prefix_bytes(options_);
    for (;; asked_inline_ /= 2) {
        ibv_qp_cap capabilities{};
        capabilities.max_send_wr = depth;
        // Header, data, a ring's tail; what is in front of them.
        capabilities.max_send_sge = prefix == 0 ? 3 : 4;
        capabilities.max_inline_data = asked_inline_;
        verbs::QueuePair qp = objects_.make_send_queue(capabilities);
        if (!qp && errno == EINVAL && asked_inline_ != 0) continue;
        if (!qp) return qp;
        std::size_t most = std::max(capabilities.max_inline_data, prefix) - prefix;
        // What fits a new QP fits those before it. A driver may give a deeper one more.
        if (limits_.max_inline != 0) most = std::min(most, limits_.max_inline);
        limits_.max_inline = most;
        limits_.inline_end =
            most < kHeaderRoom ? 0 : std::min(options_.inline_bytes, most - kHeaderRoom) + 1;
        return qp;
    }
}

// The QP is in INIT. Throws VerbsError.
Connection::Queue Channel::make_queue(const EndpointAddress& from, const EndpointAddress& to,
                                      std::uint32_t depth) {
    Connection::Queue queue;
    queue.depth = depth;
    queue.request = std::make_unique<ConnectionRequest>();
    queue.request->from = from;
    queue.request->to = to;
    queue.request->argument = this;
    queue.request->changed = [](void* channel) { static_cast<Channel*>(channel)->note_change(); };
    if (initiators_) {
        queue.request->qp = initiators_->first().qp();
        return queue;
    }
    queue.qp = make_send_queue(depth);
    if (!queue.qp)
        throw VerbsError("a queue pair for endpoint " + std::to_string(from.endpoint), errno,
                         verbs::memlock_hint(errno,
                                             "the device has no more, or FI_HEDDLE_SEND_DEPTH is "
                                             "more than it can"));
    if (const int error = verbs::to_init_of_sender(queue.qp.get(), resources_->shared->port))
        throw VerbsError("taking a queue pair to INIT", error);
    queue.request->qp = queue.qp.get();
    return queue;
}

// The connection's WRs go to that queue from now on. Nothing is under way. Throws VerbsError.
void Channel::post_by(Connection& connection, const Connection::Queue& queue) {
    if (connection.dc_) return;
    ibv_qp* const qp = queue.qp.get();
    if (!direct_cq_) {
        connection.verbs_.emplace(qp, 1);
        return;
    }
    connection.direct_.emplace(qp, false, limits_.max_inline, resources_->register_shared(),
                               queue.depth);
    connection.direct_->count_ids_from(std::uint64_t{connection.index_} << 32, connection.posted_);
    direct_cq_->add(*connection.direct_);
}

}  // namespace heddle::protocol
