// SPDX-License-Identifier: BSD-2-Clause
// Translates the device's syndromes into verbs statuses: mlx5 PRM, table "Completion syndromes".
#include "heddle/post/mlx5_completion_queue.h"

namespace heddle::post::detail {

ibv_wc_status status_of(std::uint8_t syndrome) noexcept {
    switch (syndrome) {
        case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
            return IBV_WC_LOC_LEN_ERR;
        case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
            return IBV_WC_LOC_QP_OP_ERR;
        case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
            return IBV_WC_LOC_PROT_ERR;
        case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
            return IBV_WC_WR_FLUSH_ERR;
        case MLX5_CQE_SYNDROME_MW_BIND_ERR:
            return IBV_WC_MW_BIND_ERR;
        case MLX5_CQE_SYNDROME_BAD_RESP_ERR:
            return IBV_WC_BAD_RESP_ERR;
        case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
            return IBV_WC_LOC_ACCESS_ERR;
        case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
            return IBV_WC_REM_INV_REQ_ERR;
        case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
            return IBV_WC_REM_ACCESS_ERR;
        case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
            return IBV_WC_REM_OP_ERR;
        case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
            return IBV_WC_RETRY_EXC_ERR;
        case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
            return IBV_WC_RNR_RETRY_EXC_ERR;
        case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR:
            return IBV_WC_REM_ABORT_ERR;
        default:
            return IBV_WC_GENERAL_ERR;
    }
}

}  // namespace heddle::post::detail
