// SPDX-License-Identifier: BSD-2-Clause
// Counts doorbells: see doorbell_count.h.
#include "softhca/engine/doorbell_count.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>

#include "softhca/base/assert.h"
#include "softhca/device/limits.h"
#include "softhca/engine/request.h"
#include "softhca/record/recorder.h"

namespace softhca::engine {
namespace {

unsigned transport_units(std::uint32_t type) noexcept {
    if (has_address_vector(type)) return 3;
    if (type == IB_UVERBS_QPT_XRC_INI) return 1;  // the SRQ number
    return 0;
}

}  // namespace

BlueFlameUse blueflame_use() noexcept {
    const char* prefer = getenv("MLX5_POST_SEND_PREFER_BF");
    const char* shut = getenv("MLX5_SHUT_UP_BF");
    if (shut && strcmp(shut, "0") != 0) return kForNone;
    return prefer && !strcmp(prefer, "0") ? kForInline : kForAll;
}

PostShape shape_of(const device::QueuePair& qp, const ibv_send_wr* first,
                   const ibv_send_wr* end) noexcept {
    PostShape shape;
    const ibv_send_wr* last = nullptr;
    for (const ibv_send_wr* wr = first; wr && wr != end; wr = wr->next, ++shape.entries)
        last = wr;
    if (shape.entries != 1) return shape;  // only a list of one WQE can go by BlueFlame
    SOFTHCA_DEBUG_ASSERT(last != nullptr && last == first, "the list has one WR");
    if (last->opcode == IBV_WR_BIND_MW || last->opcode == IBV_WR_LOCAL_INV) {
        const bool binds = last->opcode == IBV_WR_BIND_MW && last->bind_mw.bind_info.length != 0;
        shape.units = 1 + umr_units(binds);
        return shape;
    }
    shape.units = 1 + transport_units(qp.type);
    switch (last->opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_RDMA_READ:
            shape.units += 1;
            break;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            shape.units += 2;
            break;
        default:
            break;
    }
    if ((last->send_flags & IBV_SEND_INLINE) && last->num_sge > 0) {
        std::uint32_t bytes = 0;
        for (int i = 0; i < last->num_sge; ++i)
            bytes += last->sg_list[i].length;
        shape.inline_data = true;
        if (bytes) shape.units += (bytes + 4 + 15) / 16;
    } else {
        for (int i = 0; i < last->num_sge; ++i)
            if (last->sg_list[i].length) ++shape.units;
    }
    return shape;
}

namespace {

// Visits the numbered WQEs from `from` on, over at most `limit` blocks. Returns how many blocks.
template <class Visit>
std::uint32_t for_each_entry(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                             std::uint32_t limit, Visit visit) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.send_ring && local.ring_blocks, "the QP has a send queue");
    std::uint32_t blocks = 0;
    while (blocks < limit && blocks < local.ring_blocks) {
        const auto at = static_cast<std::uint16_t>(from + blocks);
        std::uint32_t control[2];
        memcpy(control, local.send_ring + std::size_t{at & (local.ring_blocks - 1)} * 64,
               sizeof control);
        const auto number = static_cast<std::uint16_t>(be32toh(control[0]) >> 8);
        if (number != at || be32toh(control[1]) >> 8 != qp.number) break;
        visit(at);
        blocks += entry_blocks(local, at);
    }
    return blocks;
}

}  // namespace

std::uint32_t blocks_in_ring(const device::QueuePair& qp, const LocalQp& local) noexcept {
    return for_each_entry(qp, local, posted_so_far(local), local.ring_blocks, [](std::uint16_t) {});
}

PostShape shape_in_ring(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                        std::uint32_t limit) noexcept {
    PostShape shape;
    std::uint16_t last = from;
    for_each_entry(qp, local, from, limit, [&](std::uint16_t at) {
        last = at;
        ++shape.entries;
    });
    if (!shape.entries) return shape;
    SOFTHCA_DEBUG_ASSERT(shape.entries <= limit, "each WQE takes a block");
    shape.units = entry_units(local, last);
    shape.inline_data = carries_inline(local, qp, last);
    return shape;
}

void outline_in_ring(const device::QueuePair& qp, const LocalQp& local, std::uint16_t from,
                     std::uint32_t limit, record::Event& event) noexcept {
    for_each_entry(qp, local, from, limit, [&](std::uint16_t at) {
        const Outline entry = outline(local, qp, at);
        ++event.entries;
        event.inlines += entry.has_inline;
        event.signaled += entry.signaled;
        event.reads += entry.reads;
        event.bytes += entry.bytes;
        if (event.line == record::kNoLine && entry.address != 0)
            event.line = record::line_of(entry.address);
    });
}

bool by_blueflame(const device::QueuePair& qp, const PostShape& shape) noexcept {
    const bool taken =
        shape.inline_data ? qp.blueflame_use != kForNone : qp.blueflame_use == kForAll;
    return taken && qp.blueflame && shape.entries == 1 && shape.units > 1 &&
           shape.units <= device::kBfRegisterBytes / 2 / 16;
}

void count_post(device::QueuePair& qp, const PostShape& shape) noexcept {
    if (!shape.entries) return;
    const bool blueflame = by_blueflame(qp, shape);
    // Two threads may post on one QP, one after the other. So, unlike other counters, these have
    // more than one writer.
    (blueflame ? qp.send.blueflame : qp.send.doorbells).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace softhca::engine
