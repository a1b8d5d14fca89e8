// SPDX-License-Identifier: BSD-2-Clause
// What libmlx5 shows of its queues to those who post and poll by themselves.
#pragma once

#include <infiniband/mlx5dv.h>

#include "verbs_fixture.h"

namespace softhca::test {

inline mlx5dv_qp shown(ibv_qp* qp) {
    mlx5dv_qp out = {};
    mlx5dv_obj object = {};
    object.qp.in = qp;
    object.qp.out = &out;
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) != 0) fail("mlx5dv_init_obj");
    return out;
}

inline mlx5dv_cq shown(ibv_cq* cq) {
    mlx5dv_cq out = {};
    mlx5dv_obj object = {};
    object.cq.in = cq;
    object.cq.out = &out;
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) != 0) fail("mlx5dv_init_obj");
    return out;
}

}  // namespace softhca::test
