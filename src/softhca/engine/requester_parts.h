// SPDX-License-Identifier: BSD-2-Clause
// Two of the requester's rules, apart from its course of action: which errors fail the QP, and
// copies within the memory of one domain.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include "softhca/engine/local.h"
#include "softhca/engine/request.h"

namespace softhca::engine {

// The stream of a DCI that the WQE at `counter` names.
inline std::uint16_t stream_of(const LocalQp& local, std::uint16_t counter) noexcept {
    const std::byte* const entry =
        local.send_ring + std::size_t{counter & (local.ring_blocks - 1)} * 64;
    return be16toh(load<mlx5_wqe_ctrl_seg>(entry).dci_stream_channel_id);
}

// Whether the QP fails with this request, or its stream alone.
inline bool fails_qp(LocalQp& local, std::uint16_t counter, std::uint8_t syndrome) noexcept {
    if (syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR) return false;
    // A WQE that makes no sense may not name its stream either.
    if (!local.streams.in_use() || syndrome == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR) return true;
    return !local.streams.fail(stream_of(local, counter));
}

// Copies within the memory of the QP's own domain (mlx5dv_wr_memcpy). Returns 0 or the syndrome.
inline std::uint8_t copy_locally(device::Fabric& fabric, const device::QueuePair& qp,
                                 const Request& request) noexcept {
    SpanList to;
    if (resolve(fabric, request.remote_key, qp.pd, request.remote_address, request.data.bytes,
                IBV_ACCESS_LOCAL_WRITE, to) != Access::kOk ||
        move(fabric, request.data, to) != Moved::kOk)
        return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    return 0;
}

}  // namespace softhca::engine
