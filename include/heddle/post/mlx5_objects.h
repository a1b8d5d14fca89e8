// SPDX-License-Identifier: BSD-2-Clause
// Where the rings, doorbell records and registers of libmlx5's objects are (mlx5dv_init_obj(3)),
// for the queues of the direct path.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "heddle/error.h"

namespace heddle::post::detail {

// Whether the device checks a signature in each entry of a QP, which libmlx5 computes and the
// direct path does not (rdma-core providers/mlx5/verbs.c, qp_sig_enabled()).
inline bool signs_entries() noexcept { return std::getenv("MLX5_QP_SIGNATURE") != nullptr; }

// Throws VerbsError if the device is not an mlx5. `whose` names the object in the message.
inline void init_object(mlx5dv_obj& object, std::uint64_t type, const std::string& whose) {
    if (const int error = mlx5dv_init_obj(&object, type))
        throw VerbsError("the direct path for " + whose, error,
                         "it needs an mlx5 device; use the verbs path");
}

// Each returns the layout of an object, and throws VerbsError if the device is not an mlx5. A QP's
// entries must not be signed.
inline mlx5dv_qp layout_of(ibv_qp* qp) {
    if (signs_entries())
        throw VerbsError("the direct path for QP " + std::to_string(qp->qp_num), EOPNOTSUPP,
                         "unset MLX5_QP_SIGNATURE, or use the verbs path");
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp.in = qp;
    object.qp.out = &out;
    init_object(object, MLX5DV_OBJ_QP, "QP " + std::to_string(qp->qp_num));
    return out;
}

inline mlx5dv_cq layout_of(ibv_cq* cq) {
    mlx5dv_cq out{};
    mlx5dv_obj object{};
    object.cq.in = cq;
    object.cq.out = &out;
    init_object(object, MLX5DV_OBJ_CQ, "a CQ");
    return out;
}

inline mlx5dv_srq layout_of(ibv_srq* srq) {
    mlx5dv_srq out{};
    out.comp_mask = MLX5DV_SRQ_MASK_SRQN;
    mlx5dv_obj object{};
    object.srq.in = srq;
    object.srq.out = &out;
    init_object(object, MLX5DV_OBJ_SRQ, "an SRQ");
    return out;
}

}  // namespace heddle::post::detail
