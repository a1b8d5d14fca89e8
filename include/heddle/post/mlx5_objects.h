// SPDX-License-Identifier: BSD-2-Clause
// What libmlx5 shows of its objects, for the queues of the direct path: where rings, records and
// registers are. Throws VerbsError where the device is not an mlx5.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <string>

#include "heddle/error.h"

namespace heddle::post {

inline void show(mlx5dv_obj& object, std::uint64_t type, const std::string& whose) {
    if (const int error = mlx5dv_init_obj(&object, type))
        throw VerbsError("the direct path for " + whose, error,
                         "it needs an mlx5 device; use the verbs path");
}

inline mlx5dv_qp shown(ibv_qp* qp) {
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp.in = qp;
    object.qp.out = &out;
    show(object, MLX5DV_OBJ_QP, "QP " + std::to_string(qp->qp_num));
    return out;
}

inline mlx5dv_cq shown(ibv_cq* cq) {
    mlx5dv_cq out{};
    mlx5dv_obj object{};
    object.cq.in = cq;
    object.cq.out = &out;
    show(object, MLX5DV_OBJ_CQ, "a CQ");
    return out;
}

inline mlx5dv_srq shown(ibv_srq* srq) {
    mlx5dv_srq out{};
    out.comp_mask = MLX5DV_SRQ_MASK_SRQN;
    mlx5dv_obj object{};
    object.srq.in = srq;
    object.srq.out = &out;
    show(object, MLX5DV_OBJ_SRQ, "an SRQ");
    return out;
}

}  // namespace heddle::post
