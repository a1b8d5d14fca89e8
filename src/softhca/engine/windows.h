// SPDX-License-Identifier: BSD-2-Clause
// Memory windows: binding them to regions, by the UMR work requests that libmlx5 makes of
// IBV_WR_BIND_MW and IBV_WR_LOCAL_INV, and accesses by their keys (IBTA 10.6.7.2, 9.4.1.1.3).
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

// A UMR work request for a window (struct mlx5_wqe_umr_ctrl_seg, mlx5_wqe_mkey_context_seg and
// mlx5_wqe_umr_klm_seg), in host byte order.
struct WindowChange {
    std::uint32_t key;      // of the window so far
    std::uint8_t next_key;  // low byte of its key from now on
    bool frees;             // unbinds it
    bool must_be_free;      // CHECK_FREE: an error if it is bound
    bool must_be_own;       // CHECK_QPN: an error if another QP bound it
    std::uint32_t access;   // IBV_ACCESS_*
    std::uint64_t iova, length;
    std::uint32_t region_key;
    std::uint64_t address;
};

inline bool is_window_key(std::uint32_t key) noexcept {
    return key >> 8 >= device::kMaxMrs && key >> 8 < device::kMaxMrs + device::kMaxMws;
}

// Binds or frees a window of this process, for a request of that QP. Returns 0 or the syndrome
// (MLX5_CQE_SYNDROME_*). The caller is inside an epoch.
std::uint8_t change_window(device::Fabric& fabric, const device::QueuePair& qp,
                           const WindowChange& change) noexcept;

// Frees the window that a SEND with invalidate names, for the QP that it has reached. False: it is
// not bound by that QP.
bool invalidate_window(device::Segment& segment, const device::QueuePair& target,
                       std::uint32_t key) noexcept;

// Whether requests that reach this QP may use the key. False for a window of another QP's.
bool may_use(device::Segment& segment, std::uint32_t key, std::uint32_t qp) noexcept;

// As resolve(), of a window's key.
Access resolve_window(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                      std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                      SpanList& list) noexcept;

}  // namespace softhca::engine
