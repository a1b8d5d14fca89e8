// SPDX-License-Identifier: BSD-2-Clause
// The QP of each connection of a channel.
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

// With as much inline data as the options want, or as the device can: libmlx5 answers EINVAL where
// an entry would be longer than the device's longest (mlx5_calc_sq_size). nullptr and errno: there
// is none.
verbs::QueuePair Channel::make_send_queue() {
    const std::uint32_t prefix = prefix_bytes(options_);
    for (;; asked_inline_ /= 2) {
        ibv_qp_cap capabilities{};
        capabilities.max_send_wr = options_.send_depth;
        // Header, data, a ring's tail; what is in front of them.
        capabilities.max_send_sge = prefix == 0 ? 3 : 4;
        capabilities.max_inline_data = asked_inline_;
        verbs::QueuePair qp = objects_.make_send_queue(capabilities);
        if (!qp && errno == EINVAL && asked_inline_ != 0) continue;
        if (!qp) return qp;
        const std::uint32_t most = std::max(capabilities.max_inline_data, prefix) - prefix;
        HEDDLE_ASSERT(limits_.max_inline == 0 || most <= limits_.max_inline,
                      "what fits a new QP fits those before it");
        limits_.max_inline = most;
        limits_.inline_end =
            most < kHeaderRoom ? 0 : std::min(options_.inline_bytes, most - kHeaderRoom) + 1;
        return qp;
    }
}

void Channel::make_qp(Connection& connection, const EndpointAddress& from) {
    connection.sent_mask_ = std::min(std::bit_ceil(options_.send_depth), kFewWorks) - 1;
    connection.sent_ = std::make_unique<Connection::Record[]>(connection.sent_mask_ + 1);
    if (options_.transport == Transport::kDc) {
        make_dc(connection);
        return;
    }
    connection.qp_ = make_send_queue();
    if (!connection.qp_)
        throw VerbsError("a queue pair for endpoint " + std::to_string(from.endpoint), errno,
                         verbs::memlock_hint(errno,
                                             "the device has no more, or FI_HEDDLE_SEND_DEPTH is "
                                             "more than it can"));
    if (const int error = verbs::to_init_of_sender(connection.qp_.get(), resources_->shared->port))
        throw VerbsError("taking a queue pair to INIT", error);
    connection.request_.qp = connection.qp_.get();
    if (direct_cq_) {
        connection.direct_.emplace(connection.qp_.get(), false, limits_.max_inline,
                                   resources_->register_shared(), options_.send_depth);
        connection.direct_->count_ids_from(std::uint64_t{connection.index_} << 32);
        direct_cq_->add(*connection.direct_);
    } else {
        connection.verbs_.emplace(connection.qp_.get(), 1);
    }
}

}  // namespace heddle::protocol
