// SPDX-License-Identifier: BSD-2-Clause
// Receives as MPI programs post them - a tag, one buffer, for one message - on the shortest way: to
// the other receives, or to the end if their message is there already. Inlined into fi_trecv;
// everything else goes by RdmEndpoint::receive().
#pragma once

#include <rdma/fi_endpoint.h>

#include "common/copy.h"
#include "protocol/endpoint_impl.h"
#include "protocol/tag/matcher_tables.h"

namespace heddle::protocol {

// With a report of its end (FI_COMPLETION). False: nothing was done, and the caller has to call
// receive(). Only where there is a queue for reports, no counter of receives, and no tuple queues.
[[gnu::always_inline]] inline bool EndpointImpl::receive_plain(void* buffer, std::size_t bytes,
                                                               std::uint64_t from,
                                                               std::uint64_t tag,
                                                               std::uint64_t ignore,
                                                               void* context) {
    HEDDLE_DEBUG_ASSERT(
        bindings.receive != nullptr && bindings.receive_counter == nullptr && tuples == nullptr,
        "the caller has looked at that before");
    std::uint32_t source = kAnySource;
    if (from != FI_ADDR_UNSPEC) {
        Peer* peer;
        if (!peers.find_quickly(from, peer) || peer->failed != 0) [[unlikely]]
            return false;
        source = peer->number;
    }
    Unexpected* taken = nullptr;
    const bool done = receives_.tagged.post_quickly(
        source, tag, ignore,
        [&](UnexpectedMessage& found) {
            auto& message = static_cast<Unexpected&>(found);
            const std::span<const std::byte> payload = message.payload();
            if (message.is_announced || payload.size() > bytes) [[unlikely]]
                return false;
            if (!payload.empty()) common::copy_payload(buffer, payload.data(), payload.size());
            flow_.count_taken(*message.peer, payload.size());
            PlainEntry& entry = queue_entry(*message.peer);
            entry = {context, FI_RECV | FI_TAGGED, payload.size(), buffer, 0, message.tag};
            if (message.info.has_data) entry.add_data(message.info.data);
            taken = &message;
            return true;
        },
        [&]() -> PostedReceive& {
            Receive& receive = receives_.take_plain(buffer, bytes, context);
            receive.source = source;
            receive.tag = tag;
            receive.ignore = ignore;
            return receive;
        });
    if (taken != nullptr) unexpected_.release(*taken);
    return done;
}

}  // namespace heddle::protocol
