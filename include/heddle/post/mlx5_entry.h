// SPDX-License-Identifier: BSD-2-Clause
// Building one send entry of an mlx5 ring: control segment, transport segments, payload. Layout:
// mlx5 PRM "Send WQE"; the structures are those of infiniband/mlx5dv.h. A ring is a power of two of
// 64-byte blocks; an entry takes whole blocks and wraps from the last to the first.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "heddle/post/work_request.h"

namespace heddle::post {

inline constexpr std::uint32_t kBlock = 64, kUnit = 16, kUnitsInBlock = kBlock / kUnit;

// mlx5dv.h has no structure for it (PRM: "XRC segment").
struct XrcSegment {
    __be32 srqn;
    std::uint8_t reserved[12];
};

struct Ring {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    std::uint32_t blocks = 0, mask = 0;  // a power of two, and that less one
    std::byte* block(std::uint32_t counter) const noexcept {
        return begin + std::size_t{counter & mask} * kBlock;
    }
};

inline bool is_atomic(Opcode opcode) noexcept {
    return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}
inline bool may_be_inline(Opcode opcode) noexcept { return opcode <= Opcode::kWriteImm; }

// 16-byte units of the entry up to where payload begins: at most a block.
inline std::uint32_t header_units(Opcode opcode, bool xrc) noexcept {
    static constexpr std::uint8_t kUnits[] = {1, 1, 2, 2, 2, 3, 3};  // in the order of Opcode
    return kUnits[static_cast<std::size_t>(opcode)] + (xrc ? 1u : 0u);
}

// How long an entry will be, before it is built.
struct EntryShape {
    std::uint32_t units;         // of 16 bytes, all
    std::uint32_t inline_bytes;  // payload that it carries; 0 if that is gathered
};
[[gnu::always_inline]] inline EntryShape entry_shape(const WorkRequest& work, bool xrc) noexcept {
    EntryShape shape{header_units(work.opcode, xrc), 0};
    if (work.flags & kInline) {
        std::size_t bytes = 0;
        for (const ibv_sge& sge : work.sges)
            bytes += sge.length;
        // what is too long for any entry stays so in 32 bits
        shape.inline_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, 1 << 20));
        if (bytes != 0)
            shape.units +=
                (shape.inline_bytes + std::uint32_t{sizeof(mlx5_wqe_inl_data_seg)} + kUnit - 1) /
                kUnit;
    } else {
        for (const ibv_sge& sge : work.sges)
            shape.units += sge.length != 0 ? 1 : 0;
    }
    return shape;
}

inline std::uint8_t wire_opcode(Opcode opcode) noexcept {
    static constexpr std::uint8_t kWire[] = {MLX5_OPCODE_SEND,       MLX5_OPCODE_SEND_IMM,
                                             MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                             MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_ATOMIC_CS,
                                             MLX5_OPCODE_ATOMIC_FA};
    return kWire[static_cast<std::size_t>(opcode)];
}

// One segment, by two stores of eight bytes.
inline void put_segment(std::byte*& at, std::uint64_t first, std::uint64_t second) noexcept {
    std::memcpy(at, &first, sizeof first);
    std::memcpy(at + sizeof first, &second, sizeof second);
    at += kUnit;
}

// Inline payload behind its length; wraps at the ring's end.
class InlineWriter {
public:
    InlineWriter(const Ring& ring, std::byte* at) noexcept : ring_(ring), at_(at) {}

    [[gnu::always_inline]] void put(const std::byte* from, std::size_t length) noexcept {
        const auto room = static_cast<std::size_t>(ring_.end - at_);
        if (length > room) [[unlikely]] {
            std::memcpy(at_, from, room);
            from += room;
            length -= room;
            at_ = ring_.begin;
        }
        // one number is what most small messages are; a header before it, what most others are
        if (length == 8) {
            std::memcpy(at_, from, 8);
        } else if (length >= 16 && length <= 32) {  // both ends, which may overlap
            std::memcpy(at_, from, 16);
            std::memcpy(at_ + length - 16, from + length - 16, 16);
        } else {
            std::memcpy(at_, from, length);
        }
        at_ += length;
    }

private:
    const Ring& ring_;
    std::byte* at_;
};

// An entry that is in the ring.
class EntryReader {
public:
    EntryReader(const Ring& ring, std::uint16_t counter) noexcept
        : ring_(ring), counter_(counter) {}

    // Its 16-byte unit of that number; it may lie behind the ring's end, at its begin.
    template <class Segment>
    Segment at(std::uint32_t unit) const noexcept {
        Segment segment;
        std::memcpy(&segment,
                    ring_.block(counter_ + unit / kUnitsInBlock) + unit % kUnitsInBlock * kUnit,
                    sizeof segment);
        return segment;
    }
    std::uint32_t units() const noexcept { return be32toh(at<mlx5_wqe_ctrl_seg>(0).qpn_ds) & 0x3f; }
    // Of a READ or an atomic: where its data segments begin.
    std::uint32_t header_units(bool xrc) const noexcept {
        const std::uint32_t opcode = be32toh(at<mlx5_wqe_ctrl_seg>(0).opmod_idx_opcode) & 0xff;
        return post::header_units(
            opcode == MLX5_OPCODE_RDMA_READ ? Opcode::kRead : Opcode::kFetchAdd, xrc);
    }

private:
    const Ring& ring_;
    std::uint16_t counter_;
};

// Writes the entry at `counter` and returns its first byte. The caller has seen to it that the work
// is valid and that there is room. `mode`: QP-wide bits of fm_ce_se (signal all).
[[gnu::always_inline]] inline std::byte* build_entry(const Ring& ring, std::uint16_t counter,
                                                     std::uint32_t qpn, bool xrc, std::uint8_t mode,
                                                     const WorkRequest& work,
                                                     const EntryShape& shape) noexcept {
    // up to the payload an entry does not leave its first block
    std::byte* const begin = ring.block(counter);
    std::byte* at = begin;
    mlx5_wqe_ctrl_seg control{};
    control.opmod_idx_opcode = htobe32(std::uint32_t{counter} << 8 | wire_opcode(work.opcode));
    control.qpn_ds = htobe32(qpn << 8 | shape.units);
    control.fm_ce_se =
        static_cast<std::uint8_t>(mode | (work.flags & kSignaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                                  (work.flags & kSolicited ? MLX5_WQE_CTRL_SOLICITED : 0) |
                                  (work.flags & kFence ? MLX5_WQE_CTRL_FENCE : 0));
    if (work.opcode == Opcode::kSendImm || work.opcode == Opcode::kWriteImm)
        control.imm = htobe32(work.immediate);
    std::memcpy(at, &control, kUnit);
    at += kUnit;
    if (xrc) {
        XrcSegment segment{};
        segment.srqn = htobe32(work.remote_srq);
        std::memcpy(at, &segment, kUnit);
        at += kUnit;
    }
    if (work.opcode > Opcode::kSendImm) {  // mlx5_wqe_raddr_seg: address, key, reserved
        put_segment(at, htobe64(work.remote_address),
                    htole64(std::uint64_t{htobe32(work.remote_key)}));
        if (is_atomic(work.opcode)) {  // mlx5_wqe_atomic_seg: swap or add, compare
            const bool swaps = work.opcode == Opcode::kCompareSwap;
            const std::uint64_t operand = htobe64(swaps ? work.swap : work.compare_or_add);
            const std::uint64_t compare = htobe64(work.compare_or_add);
            std::memcpy(at, &operand, sizeof operand);
            // fetch-and-add looks at one word only; the other stays as it is, as with libmlx5
            if (swaps) std::memcpy(at + sizeof operand, &compare, sizeof compare);
            at += kUnit;
        }
    }
    if (at == ring.end) at = ring.begin;
    if (shape.inline_bytes != 0) {
        const std::uint32_t header = htobe32(shape.inline_bytes | MLX5_INLINE_SEG);
        std::memcpy(at, &header, sizeof header);
        InlineWriter writer(ring, at + sizeof header);
        for (const ibv_sge& sge : work.sges)
            writer.put(reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(sge.addr)),
                       sge.length);
    } else if ((work.flags & kInline) == 0) {
        for (const ibv_sge& sge : work.sges) {
            if (sge.length == 0) continue;  // zero would stand for 2 GiB
            const std::uint32_t bytes = is_atomic(work.opcode) ? 8 : sge.length;
            put_segment(at, htole64(std::uint64_t{htobe32(sge.lkey)} << 32 | htobe32(bytes)),
                        htobe64(sge.addr));
            if (at == ring.end) at = ring.begin;
        }
    }
    return begin;
}

}  // namespace heddle::post
