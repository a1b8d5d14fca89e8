// SPDX-License-Identifier: BSD-2-Clause
// What most messages of MPI programs are - one buffer, to a peer that is connected, by the direct
// path - on the shortest way to the device: up to eight bytes in a single block of its queue, and
// up to the eager size by what is known where this is compiled. Inlined into the calls that send,
// where what is asked for is known; everything else goes by RdmEndpoint::send().
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstring>

#include "protocol/endpoint_impl.h"
#include "protocol/transport/channel_post.h"

namespace heddle::protocol {

template <bool kIsTagged, bool kHasData, bool kIsQuiet>
[[gnu::always_inline]] inline bool EndpointImpl::post_small(Peer& peer, std::uint64_t tag,
                                                            std::uint64_t tail, std::uint32_t bytes,
                                                            std::uint64_t data,
                                                            bool is_reported) noexcept {
    const std::uint64_t start =
        peer.outgoing.next_start + (kIsTagged ? kTaggedStart : std::uint64_t{0});
    WrContext sent;
    if (is_reported) sent.what = WrContext::kOwn;
    return channel->post_small<kHasData, kIsQuiet>(*peer.small, start, tag, tail, bytes,
                                                   static_cast<std::uint32_t>(data), peer.srq, sent,
                                                   [&] {
                                                       peer.outgoing.count_sent();
                                                       ++counts.inlined;
                                                   }) == post::Posted::kOk;
}

// Up to eight bytes: fewer, or where a CQE may be due.
template <bool kIsTagged, bool kHasData>
[[gnu::noinline]] bool EndpointImpl::send_few(Peer& peer, const void* buffer, std::size_t bytes,
                                              std::uint64_t tag, std::uint64_t data,
                                              bool is_reported) noexcept {
    std::uint64_t tail = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        reinterpret_cast<std::byte*>(&tail)[i] = static_cast<const std::byte*>(buffer)[i];
    return post_small<kIsTagged, kHasData, false>(
        peer, tag, tail, static_cast<std::uint32_t>(bytes), data, is_reported);
}

template <bool kIsTagged>
inline WrContext EndpointImpl::entry_when_done(void* context) noexcept {
    WrContext sent;
    sent.user = this;
    sent.context = context;
    sent.what = WrContext::kEntry | (kIsTagged ? WrContext::kTagged : 0);
    return sent;
}

// More than eight bytes that the work queue entry has room for. kIsQuiet: they need no window, and
// no CQE. kFull: nothing was done, and the caller has to call send().
template <bool kIsTagged, bool kHasData, bool kIsQuiet>
[[gnu::noinline]] EagerSender::Result EndpointImpl::send_inline(
    Peer& peer, const void* buffer, std::size_t bytes, std::uint64_t tag, std::uint64_t data,
    EntryOfSend wanted, void* context) noexcept {
    using Result = EagerSender::Result;
    HEDDLE_DEBUG_ASSERT(channel->limits().fits_inline(bytes));
    HEDDLE_DEBUG_ASSERT(!kIsQuiet || (bytes <= kFreeBytes && channel->is_quiet(*peer.small) &&
                                      wanted != EntryOfSend::kWhenDone));
    if (uses_tuples()) [[unlikely]]
        return Result::kFull;
    if (!kIsQuiet && (bytes > options.eager_bytes || !flow_.is_open_for(peer, bytes)))
        return Result::kFull;
    const std::uint64_t start =
        peer.outgoing.next_start + (kIsTagged ? kTaggedStart : std::uint64_t{0});
    WrContext sent;
    const bool is_later = !kIsQuiet && wanted == EntryOfSend::kWhenDone;
    if (is_later)
        sent = entry_when_done<kIsTagged>(context);
    else if (wanted == EntryOfSend::kWhenCopied)
        sent.what = WrContext::kOwn;
    if (channel->post_message<kHasData, kIsQuiet>(*peer.small, start, tag, buffer, bytes,
                                                  static_cast<std::uint32_t>(data), peer.srq,
                                                  sent) != post::Posted::kOk)
        return Result::kFull;
    ++counts.inlined;
    peer.outgoing.count_sequenced();
    if (!kIsQuiet) {
        flow_.count_sent(peer, bytes);
        flow_.count_posted(peer, bytes);
    }
    return is_later ? Result::kLater : Result::kCopied;
}

// More than that, as a SEND: copied to a buffer, or, if there is an entry of its end, from where it
// stands. kFull: as above.
template <bool kIsTagged, bool kHasData>
[[gnu::noinline]] EagerSender::Result EndpointImpl::send_eager(Peer& peer, const void* buffer,
                                                               std::size_t bytes, std::uint64_t tag,
                                                               std::uint64_t data,
                                                               EntryOfSend wanted,
                                                               void* context) noexcept {
    using Result = EagerSender::Result;
    if (uses_tuples() || bytes > options.eager_bytes) return Result::kFull;
    HEDDLE_DEBUG_ASSERT(!tuples || bytes < tuples->least_bytes(),
                        "small messages are not sent so where they may have queues");
    if (channel->should_poll(*peer.small)) [[unlikely]] {
        progress(kPolledAtOnce);
        if (peer.small == nullptr) return Result::kFull;  // it has gone, or others wait now
    }
    if (!flow_.is_open_for(peer, bytes)) return Result::kFull;
    // Before a buffer is looked for, as its uses are counted.
    if (!channel->has_room(*peer.small)) [[unlikely]]
        return Result::kFull;
    if (wanted != EntryOfSend::kNone) {  // it may stay where it is
        const iovec whole{const_cast<void*>(buffer), bytes};
        if (Reuse::Buffer* const reused = reuse_.source(whole, ReuseCosts::kSend)) [[unlikely]]
            return eager_.send_reused(
                peer,
                {.iov = &whole,
                 .iov_count = 1,
                 .tag = tag,
                 .data = data,
                 .flags = FI_COMPLETION | (kIsTagged ? FI_TAGGED : std::uint64_t{0}) |
                          (kHasData ? FI_REMOTE_CQ_DATA : std::uint64_t{0}),
                 .context = context},
                bytes, *reused);
    }
    WrContext sent;
    const bool is_later = wanted == EntryOfSend::kWhenDone;
    if (is_later)
        sent = entry_when_done<kIsTagged>(context);
    else if (wanted == EntryOfSend::kWhenCopied)
        sent.what = WrContext::kOwn;
    memory::Pool& buffers = channel->send_buffers();
    sent.buffer = buffers.take();
    if (sent.buffer == nullptr) return Result::kFull;
    const std::uint64_t header[2] = {
        peer.outgoing.next_start + (kIsTagged ? kTaggedStart : std::uint64_t{0}), tag};
    static_assert(sizeof header == sizeof(Header));
    std::memcpy(sent.buffer, header, sizeof header);
    std::memcpy(sent.buffer + sizeof header, buffer, bytes);
    const ibv_sge sges[1] = {{reinterpret_cast<std::uintptr_t>(sent.buffer),
                              static_cast<std::uint32_t>(sizeof header + bytes), buffers.key()}};
    post::WorkRequest work;
    work.opcode = kHasData ? post::Opcode::kSendImm : post::Opcode::kSend;
    work.immediate = static_cast<std::uint32_t>(data);
    work.remote_srq = peer.name.srqn;
    work.sges = sges;
    if (channel->post_direct(*peer.small, work, sent) != post::Posted::kOk) {
        buffers.give_back(sent.buffer);
        return Result::kFull;
    }
    ++counts.eager;
    ++counts.copied_by_size[EndpointCounts::size_index(bytes)];
    peer.outgoing.count_sequenced();
    flow_.count_sent(peer, bytes);
    flow_.count_posted(peer, bytes);
    return is_later ? Result::kLater : Result::kCopied;
}

// To a peer on the same host: up to what a slot of its ring has room for. The report is made at
// once, as the payload has been copied.
template <bool kIsTagged, bool kHasData>
[[gnu::noinline]] bool EndpointImpl::send_small_by_shm(Peer& peer, const void* buffer,
                                                       std::size_t bytes, std::uint64_t tag,
                                                       std::uint64_t data, bool wants_entry,
                                                       void* context) noexcept {
    constexpr std::size_t kMost = ShmSlot::kInside - sizeof(Header);
    if (bytes > kMost || peer.has_writes || (kHasData && data > UINT32_MAX)) return false;
    ShmSender& ring = *peer.shm_small;
    std::byte* const to = ring.reserve(sizeof(Header) + bytes);
    if (to == nullptr) [[unlikely]]
        return false;
    const std::uint64_t start =
        peer.outgoing.next_start + (kIsTagged ? kTaggedStart : std::uint64_t{0});
    std::memcpy(to, &start, sizeof start);
    std::memcpy(to + sizeof start, &tag, sizeof tag);
    if (bytes == sizeof(std::uint64_t)) [[likely]]
        std::memcpy(to + sizeof(Header), buffer, sizeof(std::uint64_t));
    else if (bytes != 0)
        std::memcpy(to + sizeof(Header), buffer, bytes);
    const bool sleeps =
        ring.publish(sizeof(Header) + bytes, kHasData, static_cast<std::uint32_t>(data));
    peer.outgoing.count_sent();
    ++counts.shm.sent;
    if (wants_entry) {
        CompletionEntry& done = bindings.transmit->push();
        done.context = context;
        done.flags = FI_SEND | (kIsTagged ? FI_TAGGED : FI_MSG);
    }
    if (sleeps) [[unlikely]]
        wake(peer);
    return true;
}

template <bool kIsTagged, bool kHasData>
[[gnu::always_inline]] inline bool EndpointImpl::send_small_of_kind(
    const void* buffer, std::size_t bytes, std::uint64_t to, std::uint64_t tag, std::uint64_t data,
    EntryOfSend wanted, void* context) noexcept {
    const bool is_later = wanted == EntryOfSend::kWhenDone;
    const bool wants_entry = wanted != EntryOfSend::kNone;
    Peer* peer;
    if (!peers.find_quickly(to, peer)) [[unlikely]]
        return false;
    if (wants_entry && !bindings.transmit->has_room()) [[unlikely]]
        return false;
    if (peer->small == nullptr) [[unlikely]]
        return !is_later && peer->shm_small != nullptr &&
               send_small_by_shm<kIsTagged, kHasData>(*peer, buffer, bytes, tag, data, wants_entry,
                                                      context);
    if (kHasData && data > UINT32_MAX) return false;
    if (is_later && bytes == 0) return false;
    std::uint64_t tail;
    const bool is_quiet = !is_later && Channel::is_quiet(*peer->small);
    if (bytes != sizeof tail || !is_quiet) [[unlikely]] {
        if (bytes > sizeof tail || bytes > options.inline_bytes || is_later) {
            const EagerSender::Result sent =
                !channel->limits().fits_inline(bytes)
                    ? send_eager<kIsTagged, kHasData>(*peer, buffer, bytes, tag, data, wanted,
                                                      context)
                : is_quiet && bytes <= kFreeBytes
                    ? send_inline<kIsTagged, kHasData, true>(*peer, buffer, bytes, tag, data,
                                                             wanted, context)
                    : send_inline<kIsTagged, kHasData, false>(*peer, buffer, bytes, tag, data,
                                                              wanted, context);
            if (sent == EagerSender::Result::kLater) return true;
            if (sent != EagerSender::Result::kCopied) return false;
        } else if (!send_few<kIsTagged, kHasData>(*peer, buffer, bytes, tag, data, wants_entry)) {
            return false;
        }
    } else {
        std::memcpy(&tail, buffer, sizeof tail);
        if (!post_small<kIsTagged, kHasData, true>(*peer, tag, tail, sizeof tail, data,
                                                   wants_entry))
            return false;
    }
    if (wants_entry) {
        CompletionEntry& entry = bindings.transmit->push();
        entry.context = context;
        entry.flags = FI_SEND | (kIsTagged ? FI_TAGGED : FI_MSG);
    }
    return true;
}

// kind: FI_TAGGED, FI_REMOTE_CQ_DATA; known when this is compiled, mostly, as is `wanted`. False:
// nothing was done, and the caller has to call send().
[[gnu::always_inline]] inline bool EndpointImpl::send_small(const void* buffer, std::size_t bytes,
                                                            std::uint64_t to, std::uint64_t tag,
                                                            std::uint64_t data, std::uint64_t kind,
                                                            EntryOfSend wanted,
                                                            void* context) noexcept {
    const auto by = [&]<bool kIsTagged, bool kHasData>() __attribute__((always_inline)) {
        return send_small_of_kind<kIsTagged, kHasData>(buffer, bytes, to, tag, data, wanted,
                                                       context);
    };
    if (kind & FI_REMOTE_CQ_DATA)
        return kind & FI_TAGGED ? by.operator()<true, true>() : by.operator()<false, true>();
    return kind & FI_TAGGED ? by.operator()<true, false>() : by.operator()<false, false>();
}

}  // namespace heddle::protocol
