// SPDX-License-Identifier: BSD-2-Clause
// The queue pairs of DC, the dynamically connected transport of mlx5 devices. Each WR of an
// initiator (DCI) names its target (DCT): by the way to its port, its number, and its access key
// (mlx5dv_create_qp(3), mlx5dv_wr_post(3)). So the number of queue pairs does not depend on peers.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/connection.h"
#include "verbs/handles.h"

namespace heddle::verbs {

// Whether the device has DC, which it says by making an initiator only.
bool has_dynamic_connection(ibv_context* context) noexcept;

// Returns an initiator in RESET whose send queue has at least what `capabilities` says, which then
// says what it has. nullptr: errno says why; without DC mostly EOPNOTSUPP or EINVAL.
QueuePair create_initiator(ibv_pd* pd, ibv_cq* cq, ibv_qp_cap& capabilities) noexcept;
// Takes an initiator from any state to RTS. What it had posted must have completed. Returns 0 or
// an errno.
int make_ready(ibv_qp* initiator, const ConnectionAttributes& attributes) noexcept;

// Returns a target that takes receives from the SRQ, and reads and writes from those who have the
// key. Its number is known once it is ready: it is in RTR. Throws VerbsError.
QueuePair create_target(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, std::uint64_t key,
                        const ConnectionAttributes& attributes);

}  // namespace heddle::verbs
