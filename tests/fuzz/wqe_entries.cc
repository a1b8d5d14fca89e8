// SPDX-License-Identifier: BSD-2-Clause
#include "wqe_entries.h"

#include <endian.h>

#include <algorithm>
#include <array>

namespace softhca::fuzz {
namespace {

// Some bytes of a region and its key; now and then more than there are, or the key of another one.
struct Place {
    std::uint64_t address;
    std::uint32_t length, key;
};

device::MemoryWindow& window_of(World& w, Input& input) {
    return w.segment().mws[w.windows[input.byte() % w.windows.size()]];
}

device::Mkey& mkey_of(World& w, Input& input) {
    return w.segment().mkeys[w.mkeys[input.byte() % w.mkeys.size()]];
}

Place place(World& w, Input& input) {
    const MemoryPart& region = w.regions[input.byte() % w.regions.size()];
    const auto all = static_cast<std::uint32_t>(region.length);
    Place place{region.address, 0, region.key};
    const std::uint8_t how = input.byte();
    std::uint32_t at = 0;
    if (how & 1) at = how & 2 ? input.below(all) : input.byte() % all & ~7u;
    place.address += at;
    place.length = how & 4 ? 1 + input.byte() % 80 : 8;
    if (how & 8) place.length = 1 + input.value<std::uint16_t>() % all;
    place.length = std::min(place.length, all - at);
    switch (how >> 4) {
        case 9: {
            const device::Mkey& mkey = mkey_of(w, input);
            place.key = mkey.key.load();
            place.address = mkey.start.load() + (how & 1 ? at : input.byte());
            break;
        }
        case 10: {
            const device::MemoryWindow& window = window_of(w, input);
            place.key = window.key.load();
            place.address = window.iova.load() + at;
            break;
        }
        case 11:
            place.address = region.address - input.byte();
            break;
        case 12:
            place.length = input.value<std::uint16_t>();
            break;
        case 13:
            place.length = input.one_in(2) ? 0 : input.word();
            break;  // 0 stands for 2 GiB
        case 14:
            place.key = input.one_in(2) ? input.word() : w.regions[how & 3].key;
            break;
        case 15:
            place.address = input.pick<std::uint64_t>({0, 8, ~7ull, 1ull << 63, 1ull << 47});
            break;
        default:
            break;
    }
    return place;
}

// What libmlx5 makes of a bind or an invalidation (set_bind_wr), with other values.
void add_umr(World& w, Entry& entry, std::uint32_t key, std::uint32_t queue, Input& input) {
    const bool binds = input.one_in(2);
    const Place where = place(w, input);
    mlx5_wqe_umr_ctrl_seg control{};
    control.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    control.flags |= binds ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE : MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
    if (input.one_in(2)) control.flags = input.byte();
    entry.add(control);
    mlx5_wqe_mkey_context_seg context{};
    context.free = binds ? 0 : MLX5_WQE_MKEY_CONTEXT_FREE;
    context.access_flags = input.byte();
    context.qpn_mkey = htobe32(queue << 8 | ((key + 1) & 0xff));
    context.start_addr = htobe64(input.one_in(4) ? input.value<std::uint64_t>() : where.address);
    context.len = htobe64(where.length);
    entry.add(context);
    if (!binds) return;
    std::array<std::byte, 4 * kUnit> part{};
    const mlx5_wqe_umr_klm_seg range{htobe32(where.length), htobe32(where.key),
                                     htobe64(where.address)};
    std::memcpy(part.data(), &range, sizeof range);
    entry.add(part);
}

// What libmlx5 makes of a change of an indirect key, with other values.
void add_mkey_umr(World& w, Entry& entry, std::uint32_t key, Input& input) {
    const bool repeats = input.one_in(3);
    const std::uint32_t parts = input.below(9);
    mlx5_wqe_umr_ctrl_seg control{};
    control.flags = input.one_in(8) ? input.byte() : std::uint8_t{MLX5_WQE_UMR_CTRL_FLAG_INLINE};
    control.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
                                input.below(1 << 22));
    control.klm_octowords = htobe16(
        static_cast<std::uint16_t>(input.one_in(8) ? input.byte() : parts + (repeats ? 1 : 0)));
    entry.add(control);
    mlx5_wqe_mkey_context_seg context{};
    context.free = input.one_in(8) ? MLX5_WQE_MKEY_CONTEXT_FREE : 0;
    context.access_flags = input.one_in(4) ? input.byte() : 0x7c;
    context.qpn_mkey = htobe32((input.one_in(4) ? input.word() : ~0u) << 8 | (key & 0xff));
    context.start_addr = htobe64(input.one_in(4) ? input.value<std::uint64_t>() : 0);
    context.len = htobe64(input.one_in(4) ? input.value<std::uint64_t>() : input.below(4096));
    entry.add(context);
    if (repeats) {
        mlx5_wqe_umr_repeat_block_seg head{};
        head.op = htobe32(0x400);
        head.repeat_count = htobe32(input.one_in(4) ? input.word() : input.below(64));
        head.num_ent = htobe16(static_cast<std::uint16_t>(input.one_in(8) ? input.byte() : parts));
        entry.add(head);
    }
    for (std::uint32_t i = 0; i < parts; ++i) {
        const Place where = place(w, input);
        const auto bytes = static_cast<std::uint16_t>(where.length),
                   stride = static_cast<std::uint16_t>(input.below(300));
        if (repeats)
            entry.add(mlx5_wqe_umr_repeat_ent_seg{htobe16(stride), htobe16(bytes),
                                                  htobe32(where.key), htobe64(where.address)});
        else
            entry.add(mlx5_wqe_umr_klm_seg{htobe32(where.length), htobe32(where.key),
                                           htobe64(where.address)});
    }
}

}  // namespace

void Entry::add_inline(Input& input) {
    const unsigned room = (kMostUnits - units) * kUnit;
    if (room < kUnit) return;
    std::byte data[kMostUnits * kUnit] = {};
    const unsigned size = std::min<unsigned>(input.below(1024), room - 4);
    const std::uint32_t head = htobe32(size | MLX5_INLINE_SEG);
    std::memcpy(data, &head, sizeof head);
    input.bytes(data + 4, std::min(size, 32u));
    const unsigned more = (size + 4 + kUnit - 1) / kUnit;
    std::memcpy(bytes + units * kUnit, data, more * kUnit);
    units += more;
}

mlx5_wqe_data_seg data_segment(World& w, Input& input) {
    const Place where = place(w, input);
    mlx5_wqe_data_seg segment{};
    segment.byte_count = htobe32(where.length);
    segment.lkey = htobe32(input.one_in(16) ? std::uint32_t{MLX5_INVALID_LKEY} : where.key);
    segment.addr = htobe64(where.address);
    return segment;
}

Entry send_entry(World& w, Queue& queue, std::uint16_t counter, Input& input) {
    constexpr std::uint8_t kOpcodes[] = {MLX5_OPCODE_NOP,
                                         MLX5_OPCODE_SEND,
                                         MLX5_OPCODE_SEND_IMM,
                                         MLX5_OPCODE_RDMA_WRITE,
                                         MLX5_OPCODE_RDMA_WRITE_IMM,
                                         MLX5_OPCODE_RDMA_READ,
                                         MLX5_OPCODE_ATOMIC_CS,
                                         MLX5_OPCODE_ATOMIC_FA,
                                         MLX5_OPCODE_UMR,
                                         MLX5_OPCODE_SEND_INVAL,
                                         MLX5_OPCODE_MMO};
    const std::uint8_t opcode = input.one_in(16) ? input.byte() : input.pick(kOpcodes);
    Entry entry;
    mlx5_wqe_ctrl_seg control{};
    const bool copies = opcode == MLX5_OPCODE_MMO;
    control.opmod_idx_opcode =
        htobe32((copies ? 1u << 24 : 0) | std::uint32_t{counter} << 8 | opcode);
    control.fm_ce_se = input.byte();
    control.imm = input.word();
    const bool umr = opcode == MLX5_OPCODE_UMR;
    std::uint32_t key = 0;
    const bool indirect = input.one_in(2);
    if (umr || opcode == MLX5_OPCODE_SEND_INVAL) {
        key = input.one_in(8) ? input.word()
              : indirect      ? mkey_of(w, input).key.load()
                              : window_of(w, input).key.load();
        control.imm = htobe32(key);
    }
    entry.add(control);
    if (queue.type == IB_UVERBS_QPT_XRC_INI) {
        const std::array<std::uint32_t, 4> segment{
            htobe32(input.one_in(8) ? input.word() : w.xrc_srq.number)};
        entry.add(segment);
    }
    if (queue.type == IB_UVERBS_QPT_UD) {
        mlx5_wqe_av av{};
        input.bytes(&av, 4);
        const Queue& to = w.queues[input.byte() % w.queues.size()];
        const bool extended = !input.one_in(4);
        if (!input.one_in(8)) av.key.qkey.qkey = htobe32(kQkey);
        av.dqp_dct = htobe32((input.one_in(8) ? input.word() : to.number) & 0xffffff);
        if (extended) av.dqp_dct |= htobe32(0x80000000u);
        av.rlid = htobe16(device::kFirstLid);
        if (input.one_in(2)) av.grh_gid_fl = htobe32(1u << 30 | input.word());
        if (input.one_in(4)) {
            av.dqp_dct |= htobe32(device::kMulticastQp);
            av.rlid = htobe16(device::kFirstMulticastLid);
            av.grh_gid_fl |= htobe32(1u << 30);
            std::memcpy(av.rgid, w.group_gid, sizeof av.rgid);
        }
        entry.add(av);
        if (!extended) entry.units = 2;
    }
    const bool atomic = opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
    const bool rdma = opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
                      opcode == MLX5_OPCODE_RDMA_READ;
    if (rdma || atomic) {
        const Place where = place(w, input);
        const mlx5_wqe_raddr_seg remote{htobe64(where.address), htobe32(where.key), 0};
        entry.add(remote);
    }
    if (atomic) {
        const mlx5_wqe_atomic_seg operands{htobe64(input.value<std::uint64_t>()),
                                           htobe64(input.byte())};
        entry.add(operands);
    }
    if (umr && indirect)
        add_mkey_umr(w, entry, key, input);
    else if (umr)
        add_umr(w, entry, key, queue.number, input);
    if (copies) {  // source and target, of one length more often than not
        entry.add(std::array<std::byte, kUnit>{});
        const mlx5_wqe_data_seg from = data_segment(w, input);
        mlx5_wqe_data_seg to = data_segment(w, input);
        if (!input.one_in(4)) to.byte_count = from.byte_count;
        entry.add(from);
        entry.add(to);
    }
    for (unsigned n = umr || copies ? 0 : input.below(6); n; --n) {
        if (input.one_in(5))
            entry.add_inline(input);
        else
            entry.add(data_segment(w, input));
    }
    const std::uint32_t number = input.one_in(16) ? input.word() : queue.number;
    const std::uint32_t units = input.one_in(8) ? input.byte() & 0x3f : entry.units;
    const std::uint32_t qpn_ds = htobe32(number << 8 | units);
    std::memcpy(entry.bytes + 4, &qpn_ds, sizeof qpn_ds);
    for (unsigned n = input.one_in(4) ? input.below(8) : 0; n; --n)
        entry.bytes[input.below(entry.units * kUnit)] ^= static_cast<std::byte>(input.byte());
    return entry;
}

}  // namespace softhca::fuzz
