// SPDX-License-Identifier: BSD-2-Clause
// Building one send entry of an mlx5 ring: control segment, transport segments, payload. Layout:
// mlx5 PRM "Send WQE"; the structures are those of infiniband/mlx5dv.h. A ring is a power of two of
// 64-byte blocks; an entry takes whole blocks and wraps from the last to the first.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "heddle/post/work.h"

namespace heddle::post {

inline constexpr std::uint32_t kBlock = 64, kUnit = 16;

// mlx5dv.h has no structure for it (PRM: "XRC segment").
struct XrcSegment {
    __be32 srqn;
    std::uint8_t reserved[12];
};

struct Ring {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    std::uint32_t blocks = 0;  // a power of two
    std::byte* block(std::uint32_t counter) const noexcept {
        return begin + std::size_t{counter & (blocks - 1)} * kBlock;
    }
};

inline bool is_atomic(Opcode opcode) noexcept {
    return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}

// 16-byte units of the entry up to where payload begins.
inline std::uint32_t header_units(Opcode opcode, bool xrc) noexcept {
    const std::uint32_t transport = xrc ? 1 : 0;
    switch (opcode) {
        case Opcode::kSend:
        case Opcode::kSendImm:
            return 1 + transport;
        case Opcode::kWrite:
        case Opcode::kWriteImm:
        case Opcode::kRead:
            return 2 + transport;
        case Opcode::kCompareSwap:
        case Opcode::kFetchAdd:
            return 3 + transport;
    }
    return 0;
}

// Units of the whole entry, before it is built.
inline std::uint32_t entry_units(const Work& work, bool xrc) noexcept {
    std::uint32_t units = header_units(work.opcode, xrc);
    if (work.flags & kInline) {
        std::size_t bytes = 0;
        for (const ibv_sge& piece : work.pieces)
            bytes += piece.length;
        if (bytes != 0)
            units += static_cast<std::uint32_t>(
                (bytes + sizeof(mlx5_wqe_inl_data_seg) + kUnit - 1) / kUnit);
    } else {
        for (const ibv_sge& piece : work.pieces)
            units += piece.length != 0 ? 1 : 0;
    }
    return units;
}

inline std::uint8_t wire_opcode(Opcode opcode) noexcept {
    switch (opcode) {
        case Opcode::kSend:
            return MLX5_OPCODE_SEND;
        case Opcode::kSendImm:
            return MLX5_OPCODE_SEND_IMM;
        case Opcode::kWrite:
            return MLX5_OPCODE_RDMA_WRITE;
        case Opcode::kWriteImm:
            return MLX5_OPCODE_RDMA_WRITE_IMM;
        case Opcode::kRead:
            return MLX5_OPCODE_RDMA_READ;
        case Opcode::kCompareSwap:
            return MLX5_OPCODE_ATOMIC_CS;
        case Opcode::kFetchAdd:
            return MLX5_OPCODE_ATOMIC_FA;
    }
    return MLX5_OPCODE_NOP;
}

// Walks an entry, wrapping at the ring's end.
class EntryWriter {
public:
    EntryWriter(const Ring& ring, std::uint32_t counter) noexcept
        : ring_(ring), at_(ring.block(counter)) {}

    // What the ring holds from its last pass.
    template <class Segment>
    Segment current() const noexcept {
        Segment segment;
        std::memcpy(&segment, at_, sizeof segment);
        return segment;
    }

    template <class Segment>
    void put(const Segment& segment) noexcept {
        static_assert(sizeof(Segment) == kUnit);
        std::memcpy(at_, &segment, kUnit);
        at_ += kUnit;
        if (at_ == ring_.end) at_ = ring_.begin;
    }

    // The inline segment: its length, and the payload behind it.
    void put_inline(std::span<const ibv_sge> pieces) noexcept {
        std::uint32_t bytes = 0;
        for (const ibv_sge& piece : pieces)
            bytes += piece.length;
        if (bytes == 0) return;
        const std::uint32_t header = htobe32(bytes | MLX5_INLINE_SEG);
        std::memcpy(at_, &header, sizeof header);
        at_ += sizeof header;
        for (const ibv_sge& piece : pieces)
            put_bytes(reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(piece.addr)),
                      piece.length);
    }

private:
    void put_bytes(const std::byte* from, std::size_t length) noexcept {
        const auto room = static_cast<std::size_t>(ring_.end - at_);
        if (length > room) [[unlikely]] {
            std::memcpy(at_, from, room);
            from += room;
            length -= room;
            at_ = ring_.begin;
        }
        std::memcpy(at_, from, length);
        at_ += length;
    }

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
        constexpr std::uint32_t kUnits = kBlock / kUnit;
        Segment segment;
        std::memcpy(&segment, ring_.block(counter_ + unit / kUnits) + unit % kUnits * kUnit,
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

struct Entry {
    mlx5_wqe_ctrl_seg* control;
    std::uint32_t units;
};

// Writes the entry at `counter`. The caller has seen to it that the work is valid and that there is
// room. `mode`: QP-wide bits of fm_ce_se (signal all).
inline Entry build_entry(const Ring& ring, std::uint16_t counter, std::uint32_t qpn, bool xrc,
                         std::uint8_t mode, const Work& work) noexcept {
    EntryWriter writer(ring, counter);
    mlx5_wqe_ctrl_seg control{};
    const std::uint32_t units = entry_units(work, xrc);
    control.opmod_idx_opcode = htobe32(std::uint32_t{counter} << 8 | wire_opcode(work.opcode));
    control.qpn_ds = htobe32(qpn << 8 | units);
    control.fm_ce_se =
        static_cast<std::uint8_t>(mode | (work.flags & kSignaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                                  (work.flags & kSolicited ? MLX5_WQE_CTRL_SOLICITED : 0) |
                                  (work.flags & kFence ? MLX5_WQE_CTRL_FENCE : 0));
    if (work.opcode == Opcode::kSendImm || work.opcode == Opcode::kWriteImm)
        control.imm = htobe32(work.immediate);
    writer.put(control);
    if (xrc) {
        XrcSegment segment{};
        segment.srqn = htobe32(work.remote_srq);
        writer.put(segment);
    }
    if (work.opcode != Opcode::kSend && work.opcode != Opcode::kSendImm) {
        mlx5_wqe_raddr_seg segment{};
        segment.raddr = htobe64(work.remote_address);
        segment.rkey = htobe32(work.remote_key);
        writer.put(segment);
    }
    if (work.opcode == Opcode::kCompareSwap) {
        mlx5_wqe_atomic_seg segment{};
        segment.swap_add = htobe64(work.swap);
        segment.compare = htobe64(work.compare_or_add);
        writer.put(segment);
    } else if (work.opcode == Opcode::kFetchAdd) {
        // The device looks at one word only; the other stays as it is, as with libmlx5.
        auto segment = writer.current<mlx5_wqe_atomic_seg>();
        segment.swap_add = htobe64(work.compare_or_add);
        writer.put(segment);
    }
    if (work.flags & kInline) {
        writer.put_inline(work.pieces);
    } else {
        for (const ibv_sge& piece : work.pieces) {
            if (piece.length == 0) continue;  // zero would stand for 2 GiB
            mlx5_wqe_data_seg segment{};
            segment.byte_count = htobe32(is_atomic(work.opcode) ? 8 : piece.length);
            segment.lkey = htobe32(piece.lkey);
            segment.addr = htobe64(piece.addr);
            writer.put(segment);
        }
    }
    return {reinterpret_cast<mlx5_wqe_ctrl_seg*>(ring.block(counter)), units};
}

}  // namespace heddle::post
