// SPDX-License-Identifier: BSD-2-Clause
// Small requests of reliable connections, in one piece: see short_cut.h.
#include "softhca/engine/short_cut.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::QueuePair;

namespace {

struct Payload {
    const std::byte* from;
    std::uint32_t bytes;
    bool is_inline;
};

// The one data segment at `segment`, which takes what is left of the entry.
bool find_payload(Fabric& fabric, const QueuePair& qp, const std::byte* segment,
                  std::uint32_t units, Payload& payload) noexcept {
    const std::uint32_t length = be32toh(load<std::uint32_t>(segment));
    payload.is_inline = length & MLX5_INLINE_SEG;
    payload.bytes = length & ~MLX5_INLINE_SEG;
    if (!payload.bytes) return false;
    if (payload.is_inline) {
        payload.from = segment + 4;
        return payload.bytes <= kUnit * kUnitsInBlock &&
               (payload.bytes + 4 + kUnit - 1) / kUnit == units;
    }
    if (units != 1 || payload.bytes > device::kMaxMessage) return false;
    const auto entry = load<mlx5_wqe_data_seg>(segment);
    payload.from =
        resolve_shared(fabric, be32toh(entry.lkey), qp.pd, be64toh(entry.addr), payload.bytes, 0);
    return payload.from != nullptr;
}

bool write(Fabric& fabric, QueuePair& target, const Request& request,
           const Payload& payload) noexcept {
    if (!(target.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) return false;
    std::byte* to = resolve_shared(fabric, request.remote_key, target.pd, request.remote_address,
                                   payload.bytes, IBV_ACCESS_REMOTE_WRITE);
    if (!to) return false;
    copy_ordered(to, payload.from, payload.bytes);
    count(target.receive.dma_write_payload);
    return true;
}

bool send(Fabric& fabric, const QueuePair& requester, QueuePair& target, const Request& request,
          const Payload& payload, Response& response) noexcept {
    if (target.srq != device::kNone) return false;
    Receive receive;
    std::byte* to;
    if (!take_one_piece(fabric, target, payload.bytes, receive, &to)) return false;
    Completion& completion = *response.completion;
    fill_receive_completion(requester, target, request, receive, completion);
    if (payload.bytes <= target.scatter_recv) {
        copy_few(completion.payload, payload.from, payload.bytes);
        completion.inline_length = static_cast<std::uint8_t>(payload.bytes);
    } else {
        copy_ordered(to, payload.from, payload.bytes);
        count(target.receive.dma_write_payload);
    }
    response.has_completion = true;
    response.completion_cq = receive.cq;
    response.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
    return true;
}

}  // namespace

bool short_cut(Fabric& fabric, const LocalQp& local, QueuePair& qp, std::uint16_t counter,
               std::size_t most_bytes, Request& request, Response& response) noexcept {
    if (qp.type != IB_UVERBS_QPT_RC) return false;
    const std::byte* entry = local.send_ring + std::size_t{counter & (local.ring_blocks - 1)} * 64;
    const auto control = load<mlx5_wqe_ctrl_seg>(entry);
    const std::uint32_t qpn_ds = be32toh(control.qpn_ds);
    std::uint32_t units = qpn_ds & 0x3f;
    if ((qpn_ds >> 8) != qp.number || units > kUnitsInBlock) return false;
    request.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    const bool writes = request.opcode == MLX5_OPCODE_RDMA_WRITE;
    if ((!writes && request.opcode != MLX5_OPCODE_SEND) || units < (writes ? 3u : 2u)) return false;
    const std::byte* segment = entry + kUnit;
    if (writes) {
        request.remote_address = be64toh(load<std::uint64_t>(segment));
        request.remote_key = be32toh(load<std::uint32_t>(segment + 8));
        segment += kUnit;
        --units;
    }
    Payload payload;
    if (!find_payload(fabric, qp, segment, units - 1, payload) || payload.bytes > most_bytes)
        return false;
    request.control = control.fm_ce_se;
    request.immediate = 0;
    request.blocks = 1;
    request.gathers = payload.is_inline ? 0 : 1;
    request.data.bytes = payload.bytes;
    if (qp.attr.dlid != device::kLid) return false;
    QueuePair* target = find_receiver(fabric, qp.attr.dest_qpn, IB_UVERBS_QPT_RC);
    if (!target || !expects(*target, qp, true)) return false;
    if (!(writes ? write(fabric, *target, request, payload)
                 : send(fabric, qp, *target, request, payload, response)))
        return false;
    acknowledge(qp, *target, payload.bytes);
    return true;
}

}  // namespace softhca::engine
