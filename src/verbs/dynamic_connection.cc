// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/dynamic_connection.h"

#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::verbs {
namespace {

constexpr const char* kWhatToDo =
    "the device may have no DC; FI_HEDDLE_TRANSPORT=auto uses XRC or RC";

}  // namespace

bool has_dynamic_connection(ibv_context* context) noexcept {
    HEDDLE_ASSERT(context != nullptr);
    const ProtectionDomain pd(ibv_alloc_pd(context));
    const CompletionQueue cq(ibv_create_cq(context, 1, nullptr, nullptr, 0));
    ibv_qp_cap least{};
    least.max_send_wr = least.max_send_sge = 1;
    return pd && cq && create_initiator(pd.get(), cq.get(), least) != nullptr;
}

QueuePair create_initiator(ibv_pd* pd, ibv_cq* cq, ibv_qp_cap& capabilities) noexcept {
    HEDDLE_ASSERT(pd != nullptr && cq != nullptr);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_DRIVER;
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = capabilities;
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                IBV_QP_EX_WITH_RDMA_READ;
    mlx5dv_qp_init_attr driver{};
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    QueuePair qp(mlx5dv_create_qp(pd->context, &attributes, &driver));
    if (qp) capabilities = attributes.cap;
    return qp;
}

int make_ready(ibv_qp* initiator, const ConnectionAttributes& attributes) noexcept {
    HEDDLE_ASSERT(initiator != nullptr);
    const LocalPort& port = attributes.port;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    int error = ibv_modify_qp(initiator, &a, IBV_QP_STATE);
    a.qp_state = IBV_QPS_INIT;
    a.port_num = port.number;
    a.pkey_index = port.pkey_index;
    if (error == 0)
        error = ibv_modify_qp(initiator, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = attributes.mtu;
    a.ah_attr = path_from(port);
    if (error == 0)
        error = ibv_modify_qp(initiator, &a, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = attributes.ack_timeout;
    a.retry_cnt = attributes.retries;
    a.rnr_retry = kRnrForEver;
    a.max_rd_atomic = attributes.reads;
    if (error == 0)
        error = ibv_modify_qp(initiator, &a,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}

QueuePair create_target(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, std::uint64_t key,
                        const ConnectionAttributes& attributes) {
    HEDDLE_ASSERT(pd != nullptr && cq != nullptr && srq != nullptr);
    ibv_qp_init_attr_ex wanted{};
    wanted.qp_type = IBV_QPT_DRIVER;
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.srq = srq;
    wanted.pd = pd;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr driver{};
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    driver.dc_init_attr.dct_access_key = key;
    QueuePair qp(mlx5dv_create_qp(pd->context, &wanted, &driver));
    if (!qp) throw VerbsError("a target of DC", errno, kWhatToDo);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = attributes.port.number;
    a.pkey_index = attributes.port.pkey_index;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int error = ibv_modify_qp(qp.get(), &a,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = attributes.mtu;
    a.min_rnr_timer = attributes.min_rnr_timer;
    a.ah_attr = path_from(attributes.port);
    if (error == 0)
        error = ibv_modify_qp(qp.get(), &a,
                              IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
    if (error != 0) throw VerbsError("taking a target of DC to RTR", error, kWhatToDo);
    return qp;
}

}  // namespace heddle::verbs
