// SPDX-License-Identifier: BSD-2-Clause
// Indirect memory keys: changing them by the UMR work requests of mlx5dv (mlx5dv_wr_mr_list,
// mlx5dv_wr_mr_interleaved, mlx5dv_wr_mkey_configure), and accesses by them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

inline constexpr std::uint32_t kMkeyPartBytes = 16;  // in a WQE or a command

// A UMR work request for such a key (struct mlx5_wqe_umr_ctrl_seg, mlx5_wqe_mkey_context_seg, and
// what they are followed by), in host byte order.
struct MkeyChange {
    std::uint32_t key;      // so far
    std::uint64_t mask;     // MLX5_WQE_UMR_CTRL_MKEY_MASK_*: which of the next fields hold
    std::uint8_t next_key;  // low byte of the key from now on
    bool frees;
    std::uint32_t qp, access;  // access: IBV_ACCESS_*
    std::uint64_t start, length;
    bool must_be_free, must_be_own;  // CHECK_FREE, CHECK_QPN
    std::uint32_t layout_units;      // of 16 bytes; 0: the parts stay
    // struct mlx5_wqe_umr_klm_seg or mlx5_wqe_umr_repeat_block_seg, as in the WQE
    alignas(8) std::byte layout[device::kMaxSqDescriptorBytes];
};

inline bool is_mkey(std::uint32_t key) noexcept {
    constexpr std::uint32_t kFirst = device::kMaxMrs + device::kMaxMws;
    return key >> 8 >= kFirst && key >> 8 < kFirst + device::kMaxMkeys;
}
inline std::uint32_t key_of_mkey(std::uint32_t index, std::uint32_t low_byte) noexcept {
    return (device::kMaxMrs + device::kMaxMws + index) << 8 | low_byte;
}

// Reads parts as they are in a WQE or a command, into a key that nobody uses meanwhile.
// `entity_bytes`: of each part, if not 0 (the kind KSM). False: they do not fit, or are no parts.
bool set_parts(device::Mkey& mkey, const std::byte* layout, std::uint32_t units,
               std::uint64_t entity_bytes) noexcept;

// Changes a key of this process, for a request of that QP. Returns 0 or the syndrome
// (MLX5_CQE_SYNDROME_*). The caller is inside an epoch.
std::uint8_t change_mkey(device::Fabric& fabric, const device::QueuePair& qp,
                         const MkeyChange& change) noexcept;

// Frees the key that a SEND with invalidate names, for the QP that it has reached. False: it cannot
// be freed so, or is another QP's.
bool invalidate_mkey(device::Segment& segment, const device::QueuePair& target,
                     std::uint32_t key) noexcept;

// Whether requests that reach this QP may use the key. False for a key of another QP's.
bool may_use_mkey(device::Segment& segment, std::uint32_t key, std::uint32_t qp) noexcept;

// As resolve(), of an indirect key. The parts' own keys need the local rights only: the remote ones
// are those of this key.
Access resolve_mkey(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                    std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                    SpanList& list) noexcept;

}  // namespace softhca::engine
