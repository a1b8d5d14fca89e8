// SPDX-License-Identifier: BSD-2-Clause
// Builds one WQE in the ring of an mlx5 send queue: control segment, transport segments, payload.
// The layout is that of the mlx5 PRM, "Send WQE"; the structures are those of infiniband/mlx5dv.h.
// A ring has a power of two of 64-byte blocks (WQEBBs). A WQE takes whole blocks and wraps from the
// last one to the first.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "heddle/detail/assert.h"
#include "heddle/post/work_request.h"

namespace heddle::post::detail {

inline constexpr std::uint32_t kBlock = 64, kUnit = 16, kUnitsInBlock = kBlock / kUnit;

// PRM "XRC segment"; mlx5dv.h has no structure for it.
struct XrcSegment {
    __be32 srqn;
    std::uint8_t reserved[12];
};

struct Ring {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    std::uint32_t blocks = 0, mask = 0;  // a power of two, and that minus one
    std::byte* block(std::uint32_t counter) const noexcept {
        HEDDLE_DEBUG_ASSERT(blocks != 0 && mask == blocks - 1 && (blocks & mask) == 0);
        return begin + std::size_t{counter & mask} * kBlock;
    }
};

inline bool is_atomic(Opcode opcode) noexcept {
    return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}
inline bool may_be_inline(Opcode opcode) noexcept { return opcode <= Opcode::kWriteImm; }

// The 16-byte units of a WQE before its payload: at most a block.
inline std::uint32_t header_units(Opcode opcode, bool xrc) noexcept {
    static constexpr std::uint8_t kUnits[] = {1, 1, 2, 2, 2, 3, 3, 1};  // in the order of Opcode
    HEDDLE_DEBUG_ASSERT(static_cast<std::size_t>(opcode) < sizeof kUnits, "no opcode");
    return kUnits[static_cast<std::size_t>(opcode)] + (xrc && opcode != Opcode::kNop ? 1u : 0u);
}

// The size of a WQE, computed before it is built.
struct WqeShape {
    std::uint32_t units;         // of 16 bytes, with the payload
    std::uint32_t inline_bytes;  // payload in the WQE; 0 if the device gathers it
};
[[gnu::always_inline]] inline WqeShape wqe_shape(const WorkRequest& request, bool xrc) noexcept {
    WqeShape shape{header_units(request.opcode, xrc), 0};
    if (request.flags & kInline) {
        std::size_t bytes = 0;
        for (const ibv_sge& sge : request.sges)
            bytes += sge.length;
        // A sum that is too long for any WQE must stay too long in 32 bits.
        shape.inline_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, 1 << 20));
        if (bytes != 0)
            shape.units +=
                (shape.inline_bytes + std::uint32_t{sizeof(mlx5_wqe_inl_data_seg)} + kUnit - 1) /
                kUnit;
    } else {
        for (const ibv_sge& sge : request.sges)
            shape.units += sge.length != 0 ? 1 : 0;
    }
    return shape;
}

inline std::uint8_t wire_opcode(Opcode opcode) noexcept {
    static constexpr std::uint8_t kWire[] = {MLX5_OPCODE_SEND,       MLX5_OPCODE_SEND_IMM,
                                             MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                             MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_ATOMIC_CS,
                                             MLX5_OPCODE_ATOMIC_FA,  MLX5_OPCODE_NOP};
    return kWire[static_cast<std::size_t>(opcode)];
}

// Writes one segment by two stores of eight bytes and advances `at`.
inline void put_segment(std::byte*& at, std::uint64_t first, std::uint64_t second) noexcept {
    std::memcpy(at, &first, sizeof first);
    std::memcpy(at + sizeof first, &second, sizeof second);
    at += kUnit;
}

// Writes inline payload behind its length field; wraps at the ring's end.
class InlineWriter {
public:
    InlineWriter(const Ring& ring, std::byte* at) noexcept : ring_(ring), at_(at) {}

    [[gnu::always_inline]] void put(const std::byte* from, std::size_t length) noexcept {
        HEDDLE_DEBUG_ASSERT(at_ >= ring_.begin && at_ <= ring_.end);
        const auto room = static_cast<std::size_t>(ring_.end - at_);
        if (length > room) [[unlikely]] {
            std::memcpy(at_, from, room);
            from += room;
            length -= room;
            at_ = ring_.begin;
        }
        // Most small messages are one number; most others are a header and a number.
        if (length == 8) {
            std::memcpy(at_, from, 8);
        } else if (length >= 16 && length <= 32) {  // two halves, which may overlap
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

// Writes the inline segment of a message of `bytes`, 16 of which are two words. It does not wrap.
[[gnu::always_inline]] inline void put_inline(std::byte* at, std::uint32_t bytes,
                                              std::uint64_t first, std::uint64_t second,
                                              const std::byte* rest,
                                              std::uint32_t rest_bytes) noexcept {
    const std::uint32_t length = htobe32(bytes | MLX5_INLINE_SEG);
    std::memcpy(at, &length, sizeof length);
    at += sizeof length;
    put_segment(at, first, second);
    if (rest_bytes > 2 * kUnit && rest_bytes <= kBlock) {  // two halves, which may overlap
        std::memcpy(at, rest, 2 * kUnit);
        std::memcpy(at + rest_bytes - 2 * kUnit, rest + rest_bytes - 2 * kUnit, 2 * kUnit);
    } else if (rest_bytes >= kUnit && rest_bytes <= 2 * kUnit) {
        std::memcpy(at, rest, kUnit);
        std::memcpy(at + rest_bytes - kUnit, rest + rest_bytes - kUnit, kUnit);
    } else if (rest_bytes != 0) {
        std::memcpy(at, rest, rest_bytes);
    }
}

// Writes an inline segment that is one unit: of at most 12 bytes.
[[gnu::always_inline]] inline void put_few_inline(std::byte* at, const std::byte* from,
                                                  std::uint32_t bytes) noexcept {
    const std::uint32_t length = htobe32(bytes | MLX5_INLINE_SEG);
    std::memcpy(at, &length, sizeof length);
    if (bytes == sizeof(std::uint64_t)) [[likely]]
        std::memcpy(at + sizeof length, from, sizeof(std::uint64_t));
    else
        std::memcpy(at + sizeof length, from, bytes);
}

// Reads a WQE that is in the ring.
class WqeReader {
public:
    WqeReader(const Ring& ring, std::uint16_t counter) noexcept : ring_(ring), counter_(counter) {}

    // Returns the 16-byte unit of that index. It may have wrapped to the begin of the ring.
    template <class Segment>
    Segment at(std::uint32_t unit) const noexcept {
        Segment segment;
        std::memcpy(&segment,
                    ring_.block(counter_ + unit / kUnitsInBlock) + unit % kUnitsInBlock * kUnit,
                    sizeof segment);
        return segment;
    }
    std::uint32_t units() const noexcept { return be32toh(at<mlx5_wqe_ctrl_seg>(0).qpn_ds) & 0x3f; }
    // Returns the units before the data segments. The WQE is a READ or an atomic.
    std::uint32_t header_units(bool xrc) const noexcept {
        const std::uint32_t opcode = be32toh(at<mlx5_wqe_ctrl_seg>(0).opmod_idx_opcode) & 0xff;
        return detail::header_units(
            opcode == MLX5_OPCODE_RDMA_READ ? Opcode::kRead : Opcode::kFetchAdd, xrc);
    }

private:
    const Ring& ring_;
    std::uint16_t counter_;
};

// Writes the WQE at `counter` and returns its first byte. The caller has checked that the request
// is valid and that the ring has room. `mode`: bits of fm_ce_se for the whole QP (signal all).
[[gnu::always_inline]] inline std::byte* build_wqe(const Ring& ring, std::uint16_t counter,
                                                   std::uint32_t qpn, bool xrc, std::uint8_t mode,
                                                   const WorkRequest& request,
                                                   const WqeShape& shape) noexcept {
    HEDDLE_DEBUG_ASSERT(shape.units != 0 && shape.units < 64, "ds has six bits");
    HEDDLE_DEBUG_ASSERT((shape.units + kUnitsInBlock - 1) / kUnitsInBlock <= ring.blocks);
    // Everything before the payload fits into the first block.
    std::byte* const begin = ring.block(counter);
    std::byte* at = begin;
    mlx5_wqe_ctrl_seg control{};
    control.opmod_idx_opcode = htobe32(std::uint32_t{counter} << 8 | wire_opcode(request.opcode));
    control.qpn_ds = htobe32(qpn << 8 | shape.units);
    control.fm_ce_se =
        static_cast<std::uint8_t>(mode | (request.flags & kSignaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                                  (request.flags & kSolicited ? MLX5_WQE_CTRL_SOLICITED : 0) |
                                  (request.flags & kFence ? MLX5_WQE_CTRL_FENCE : 0));
    if (request.opcode == Opcode::kSendImm || request.opcode == Opcode::kWriteImm)
        control.imm = htobe32(request.immediate);
    std::memcpy(at, &control, kUnit);
    at += kUnit;
    if (xrc && request.opcode != Opcode::kNop) {
        XrcSegment segment{};
        segment.srqn = htobe32(request.remote_srq);
        std::memcpy(at, &segment, kUnit);
        at += kUnit;
    }
    if (request.opcode > Opcode::kSendImm &&
        request.opcode != Opcode::kNop) {  // mlx5_wqe_raddr_seg: address, key, reserved word
        put_segment(at, htobe64(request.remote_address),
                    htole64(std::uint64_t{htobe32(request.remote_key)}));
        if (is_atomic(request.opcode)) {  // mlx5_wqe_atomic_seg: swap or add, compare
            const bool swaps = request.opcode == Opcode::kCompareSwap;
            const std::uint64_t operand = htobe64(swaps ? request.swap : request.compare_or_add);
            const std::uint64_t compare = htobe64(request.compare_or_add);
            std::memcpy(at, &operand, sizeof operand);
            // The device ignores the second word of a fetch-and-add. libmlx5 does not write it
            // either.
            if (swaps) std::memcpy(at + sizeof operand, &compare, sizeof compare);
            at += kUnit;
        }
    }
    if (at == ring.end) at = ring.begin;
    if (shape.inline_bytes != 0) {
        const std::uint32_t header = htobe32(shape.inline_bytes | MLX5_INLINE_SEG);
        std::memcpy(at, &header, sizeof header);
        InlineWriter writer(ring, at + sizeof header);
        for (const ibv_sge& sge : request.sges)
            writer.put(reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(sge.addr)),
                       sge.length);
    } else if ((request.flags & kInline) == 0) {
        for (const ibv_sge& sge : request.sges) {
            if (sge.length == 0) continue;  // PRM: zero means 2 GiB
            const std::uint32_t bytes = is_atomic(request.opcode) ? 8 : sge.length;
            put_segment(at, htole64(std::uint64_t{htobe32(sge.lkey)} << 32 | htobe32(bytes)),
                        htobe64(sge.addr));
            if (at == ring.end) at = ring.begin;
        }
    }
    return begin;
}

}  // namespace heddle::post::detail
