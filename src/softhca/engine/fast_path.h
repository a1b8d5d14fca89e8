// SPDX-License-Identifier: BSD-2-Clause
// The fast path of the requests that latency is measured with: a SEND, RDMA WRITE or RDMA READ of
// an RC or XRC QP whose WQE has one data segment, in memory that is shared on both sides, for a
// receive queue of either kind. It checks what the slow path (request.h, responder.h) checks. If a
// check fails or anything is unusual, it declines and has changed nothing. So only the slow path
// handles errors, retries and all other requests. The code is in a header, so that a post needs one
// stack frame up to its payload.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/engine/responder.h"

namespace softhca::engine {

// A request that the fast path has executed: its payload is delivered, and `target` has
// acknowledged it.
struct FastPathRequest {
    std::uint8_t opcode, control;
    bool is_inline;
    std::uint32_t blocks;     // 64-byte basic blocks of the WQE
    std::uint32_t immediate;  // big-endian, as it travels
    std::uint32_t bytes;
    device::QueuePair* target;
    std::uint32_t srq_number;  // XRC
    bool has_completion;       // for the receiver, in LocalQp.unfinished.receive
    // The receiver's, if it has a completion:
    bool is_marked;  // in QueuePair.in_flight
    std::uint32_t receive_cq;
    const std::byte* payload;
};

// As copy_ordered(), but one word without a call.
inline void store_payload(std::byte* to, const std::byte* from, std::uint32_t bytes) noexcept {
    if (bytes != 8) {
        copy_ordered(to, from, bytes);
        return;
    }
    using Word [[gnu::aligned(1), gnu::may_alias]] = std::uint64_t;
    *reinterpret_cast<volatile Word*>(to) = load<std::uint64_t>(from);
}

// The part of a SEND after the checks that all requests have in common.
bool fast_send(device::Fabric& fabric, LocalQp& local, const device::QueuePair& qp,
               FastPathRequest& request) noexcept;

// Executes the WQE at `counter`, if the fast path can and it has at most `most_bytes` bytes of
// payload. `posted`: the blocks that are posted from there on, no more than the ring has. The
// caller holds the run lock and is inside an epoch.
[[gnu::always_inline]] inline bool try_fast_path(device::Fabric& fabric, LocalQp& local,
                                                 device::QueuePair& qp, std::uint16_t counter,
                                                 std::uint32_t posted, std::size_t most_bytes,
                                                 FastPathRequest& request) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked() && local.send_ring && local.ring_blocks,
                         "the thread that has the run lock executes");
    const bool is_xrc = qp.type == IB_UVERBS_QPT_XRC_INI;
    if (!is_xrc && qp.type != IB_UVERBS_QPT_RC) return false;
    const std::byte* segment =
        local.send_ring + std::size_t{counter & (local.ring_blocks - 1)} * 64;
    const auto control = load<mlx5_wqe_ctrl_seg>(segment);
    const std::uint32_t qpn_ds = be32toh(control.qpn_ds);
    std::uint32_t units = qpn_ds & 0x3f;
    request.blocks = (units + kUnitsInBlock - 1) / kUnitsInBlock;
    if ((qpn_ds >> 8) != qp.number || request.blocks > posted) return false;
    request.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    const bool reads = request.opcode == MLX5_OPCODE_RDMA_READ;
    const bool names_memory = reads || request.opcode == MLX5_OPCODE_RDMA_WRITE;
    if (!names_memory && request.opcode != MLX5_OPCODE_SEND &&
        request.opcode != MLX5_OPCODE_SEND_IMM)
        return false;
    request.control = control.fm_ce_se;
    request.immediate = control.imm;
    // The one data segment takes the rest of the WQE. It begins in the first block.
    const std::uint32_t before = 1u + is_xrc + names_memory;
    if (units <= before) return false;
    static_assert(1 + 1 + 1 < kUnitsInBlock);
    units -= before;
    segment += kUnit;
    request.srq_number = is_xrc ? be32toh(load<std::uint32_t>(segment)) & 0xffffff : 0;
    if (is_xrc) segment += kUnit;
    const std::byte* remote = segment;
    if (names_memory) segment += kUnit;
    const std::uint32_t length = be32toh(load<std::uint32_t>(segment));
    const std::uint32_t bytes = length & ~MLX5_INLINE_SEG;
    request.is_inline = length & MLX5_INLINE_SEG;
    request.bytes = bytes;
    if (!bytes || bytes > most_bytes) return false;
    std::byte* own = nullptr;
    if (request.is_inline) {
        request.payload = segment + 4;
        if (reads || (bytes + 4 + kUnit - 1) / kUnit != units) return false;
        // Longer data may go on at the beginning of the ring.
        if (request.blocks > 1 && request.payload + bytes > local.send_ring + ring_bytes(local))
            return false;
    } else {
        if (units != 1) return false;
        const auto entry = load<mlx5_wqe_data_seg>(segment);
        own = resolve_shared(fabric, be32toh(entry.lkey), qp.pd, be64toh(entry.addr), bytes,
                             reads ? IBV_ACCESS_LOCAL_WRITE : 0,
                             reads ? local.read_into : local.source);
        if (!own) return false;
        request.payload = own;
    }
    // While a link is down, the slow path looks which.
    if (fabric.segment().has_link_down.load(std::memory_order_relaxed) != 0) return false;
    device::QueuePair* target = find_receiver(fabric, qp.attr.dest_qpn, partner_type(qp.type));
    if (!target || !expects(*target, qp, true)) return false;
    request.target = target;
    request.has_completion = !names_memory;
    if (!names_memory) return fast_send(fabric, local, qp, request);
    const std::uint32_t right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!(target->attr.qp_access_flags & right)) return false;
    // What a QP is not set up to answer, and what travels in the CQE.
    if (reads && (!target->attr.max_dest_rd_atomic || bytes <= in_entry(qp.scatter_send)))
        return false;
    std::uint32_t pd;
    if (!find_domain(fabric, *target, request.srq_number, &pd)) return false;
    std::byte* there = resolve_shared(fabric, be32toh(load<std::uint32_t>(remote + 8)), pd,
                                      be64toh(load<std::uint64_t>(remote)), bytes, right,
                                      reads ? local.read_from : local.remote);
    if (!there) return false;
    if (reads) {
        store_payload(own, there, bytes);
        device::count(target->receive.dma_read_payload);
        device::count(qp.send.dma_write_payload);
    } else {
        store_payload(there, request.payload, bytes);
        device::count(target->receive.dma_write_payload);
    }
    return true;
}

}  // namespace softhca::engine
