// SPDX-License-Identifier: BSD-2-Clause
// What most messages of MPI programs are - up to eight bytes, to a peer that is connected - on the
// shortest way to the device. Inlined into the calls that send, where what is asked for is known;
// everything else goes by RdmEndpoint::send().
#pragma once

#include <cstring>

#include "protocol/endpoint_impl.h"
#include "protocol/transport/channel_post.h"

namespace heddle::protocol {

template <bool kIsTagged, bool kHasData>
[[gnu::always_inline]] inline bool EndpointImpl::post_small(Peer& peer, std::uint64_t tag,
                                                            std::uint64_t tail, std::uint32_t bytes,
                                                            std::uint64_t data) noexcept {
    const std::uint64_t start =
        peer.outgoing.next_start + (kIsTagged ? kTaggedStart : std::uint64_t{0});
    return channel->post_small<kHasData>(*peer.small, start, tag, tail, bytes,
                                         static_cast<std::uint32_t>(data), peer.srq, WrContext{},
                                         [&] {
                                             peer.outgoing.count_sent();
                                             ++counts.inlined;
                                         }) == post::Posted::kOk;
}

// Fewer than eight bytes.
template <bool kIsTagged, bool kHasData>
[[gnu::noinline]] bool EndpointImpl::send_few(Peer& peer, const void* buffer, std::size_t bytes,
                                              std::uint64_t tag, std::uint64_t data) noexcept {
    std::uint64_t tail = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        reinterpret_cast<std::byte*>(&tail)[i] = static_cast<const std::byte*>(buffer)[i];
    return post_small<kIsTagged, kHasData>(peer, tag, tail, static_cast<std::uint32_t>(bytes),
                                           data);
}

template <bool kIsTagged, bool kHasData>
[[gnu::always_inline]] inline bool EndpointImpl::send_small_of_kind(
    const void* buffer, std::size_t bytes, std::uint64_t to, std::uint64_t tag, std::uint64_t data,
    bool wants_entry, void* context) noexcept {
    Peer* peer;
    if (!peers.find_quickly(to, peer) || peer->small == nullptr) [[unlikely]]
        return false;
    if (kHasData && data > UINT32_MAX) return false;
    if (wants_entry && !bindings.transmit->has_room()) [[unlikely]]
        return false;
    std::uint64_t tail;
    if (bytes != sizeof tail) [[unlikely]] {
        if (bytes > sizeof tail || bytes > options.inline_bytes) return false;
        if (!send_few<kIsTagged, kHasData>(*peer, buffer, bytes, tag, data)) return false;
    } else {
        std::memcpy(&tail, buffer, sizeof tail);
        if (!post_small<kIsTagged, kHasData>(*peer, tag, tail, sizeof tail, data)) return false;
    }
    if (wants_entry) {
        CompletionEntry& entry = bindings.transmit->push();
        entry.context = context;
        entry.flags = FI_SEND | (kIsTagged ? FI_TAGGED : FI_MSG);
    }
    return true;
}

// kind: FI_TAGGED, FI_REMOTE_CQ_DATA; known when this is compiled, mostly. wants_entry: as soon as
// it is copied, as by FI_COMPLETION where may_report_early(). False: nothing was done, and the
// caller has to call send().
[[gnu::always_inline]] inline bool EndpointImpl::send_small(const void* buffer, std::size_t bytes,
                                                            std::uint64_t to, std::uint64_t tag,
                                                            std::uint64_t data, std::uint64_t kind,
                                                            bool wants_entry,
                                                            void* context) noexcept {
    const auto by = [&]<bool kIsTagged, bool kHasData> {
        return send_small_of_kind<kIsTagged, kHasData>(buffer, bytes, to, tag, data, wants_entry,
                                                       context);
    };
    if (kind & FI_REMOTE_CQ_DATA)
        return kind & FI_TAGGED ? by.operator()<true, true>() : by.operator()<false, true>();
    return kind & FI_TAGGED ? by.operator()<true, false>() : by.operator()<false, false>();
}

}  // namespace heddle::protocol
