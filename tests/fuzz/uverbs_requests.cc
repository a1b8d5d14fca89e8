// SPDX-License-Identifier: BSD-2-Clause
// Requests of write commands: see uverbs_requests.h.
#include "uverbs_requests.h"

#include <fcntl.h>
#include <infiniband/verbs.h>

#include <type_traits>

namespace softhca::fuzz {

std::uint32_t attributes_for(std::uint32_t state, std::uint8_t type) {
    const bool datagram = type == IB_UVERBS_QPT_UD;
    const bool requester = type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI;
    const bool responder = type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_TGT;
    std::uint32_t mask = IBV_QP_STATE;
    if (state == IBV_QPS_INIT)
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if (state == IBV_QPS_RTR && !datagram)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (state == IBV_QPS_RTR && responder) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (state == IBV_QPS_RTS) mask |= IBV_QP_SQ_PSN;
    if (state == IBV_QPS_RTS && requester)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if (state == IBV_QPS_RTS && type == IB_UVERBS_QPT_XRC_TGT) mask |= IBV_QP_TIMEOUT;
    return mask;
}

namespace {

void get_context(Session& s, Request& request) {
    request.core_as<std::uint64_t>(s.input);
    auto& driver = request.driver_as<mlx5_ib_alloc_ucontext_req_v2>(s.input);
    if (s.input.one_in(8)) return;
    driver = {};
    driver.total_num_bfregs = s.input.one_in(4) ? s.input.byte() : 16;
    driver.num_low_latency_bfregs = s.input.one_in(4) ? s.input.byte() : 4;
    driver.flags = s.input.one_in(4) ? 0 : MLX5_IB_ALLOC_UCTX_DEVX;
    driver.max_cqe_version = 1;
    driver.lib_caps = s.input.one_in(4) ? 0 : MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
}

void reg_mr(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_reg_mr>(s.input);
    request.makes(Kind::kMr);
    core.start = s.address();
    core.length = s.length();
    core.hca_va = s.input.one_in(4) ? s.address() : core.start;
    core.pd_handle = s.handle(Kind::kPd);
    core.access_flags = s.access();
}

void rereg_mr(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_rereg_mr>(s.input);
    core.mr_handle = s.handle(Kind::kMr);
    core.flags = s.input.one_in(16) ? s.input.word() : s.input.below(8);
    core.start = s.address();
    core.length = s.length();
    core.hca_va = s.input.one_in(4) ? s.address() : core.start;
    core.pd_handle = s.handle(Kind::kPd);
    core.access_flags = s.access();
}

template <class T>
void create_cq(Session& s, Request& request) {
    auto& core = request.core_as<T>(s.input);
    request.makes(Kind::kCq);
    core.user_handle = s.user_handle();
    if (!s.input.one_in(16)) core.cqe = s.input.below(512);
    if (!s.input.one_in(16)) core.comp_vector = 0;
    core.comp_channel = s.channel();
    if constexpr (std::is_same_v<T, ib_uverbs_ex_create_cq>) {
        if (!s.input.one_in(8)) core.comp_mask = core.reserved = 0;
        core.flags = s.input.below(4);
    }
    auto& driver = request.driver_as<mlx5_ib_create_cq>(s.input);
    driver.buf_addr = s.address();
    driver.db_addr = s.address();
    if (s.input.one_in(8)) return;
    driver.cqe_size = s.input.pick({64u, 128u});
    driver.cqe_comp_en = 0;
    driver.flags = static_cast<std::uint16_t>(s.input.below(4));
    driver.reserved0 = 0;
    driver.reserved1 = 0;
}

void resize_cq(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_resize_cq>(s.input);
    core.cq_handle = s.handle(Kind::kCq);
    if (!s.input.one_in(16)) core.cqe = s.input.below(512);
    auto& driver = request.driver_as<mlx5_ib_resize_cq>(s.input);
    driver.buf_addr = s.address();
    if (!s.input.one_in(8)) driver.cqe_size = s.input.pick<std::uint16_t>({64, 128});
    if (!s.input.one_in(8)) driver.reserved0 = 0, driver.reserved1 = 0;
}

template <class T>
void create_qp(Session& s, Request& request) {
    auto& core = request.core_as<T>(s.input);
    request.makes(Kind::kQp);
    constexpr std::uint8_t kTypes[] = {IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD,
                                       IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT};
    core.user_handle = s.user_handle();
    core.qp_type = request.type = s.input.one_in(16) ? s.input.byte() : s.input.pick(kTypes);
    core.pd_handle = s.handle(core.qp_type == IB_UVERBS_QPT_XRC_TGT ? Kind::kXrcd : Kind::kPd);
    core.send_cq_handle = s.handle(Kind::kCq);
    core.recv_cq_handle = s.handle(Kind::kCq);
    core.srq_handle = s.handle(Kind::kSrq);
    core.is_srq = s.input.one_in(4);
    core.sq_sig_all = s.input.one_in(2);
    if (!s.input.one_in(16)) {
        core.max_send_wr = s.input.byte();
        core.max_send_sge = core.max_recv_sge = s.input.below(32);
        core.max_recv_wr = core.qp_type == IB_UVERBS_QPT_XRC_INI ? 0 : s.input.byte();
        if (core.qp_type == IB_UVERBS_QPT_XRC_INI) core.max_recv_sge = 0;
    }
    if constexpr (std::is_same_v<T, ib_uverbs_ex_create_qp>)
        if (!s.input.one_in(16)) {
            core.reserved = 0;
            core.comp_mask = 0;
            core.create_flags = s.input.one_in(4) ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
        }
    auto& driver = request.driver_as<mlx5_ib_create_qp>(s.input);
    driver.buf_addr = s.address();
    driver.db_addr = s.address();
    if (s.input.one_in(8)) return;
    driver.sq_wqe_count = s.input.one_in(16) ? s.input.word() : 1u << s.input.below(10);
    driver.rq_wqe_count = s.input.one_in(16) ? s.input.word() : 1u << s.input.below(10);
    driver.rq_wqe_shift = s.input.one_in(16) ? s.input.word() : 4 + s.input.below(6);
    driver.flags = s.input.pick<std::uint32_t>(
        {0, MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_UAR_PAGE_INDEX,
         MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE,
         MLX5_QP_FLAG_BFREG_INDEX});
    driver.bfreg_index =
        driver.flags & MLX5_QP_FLAG_BFREG_INDEX ? s.input.below(1100) : s.handle(Kind::kUar);
}

void open_qp(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_open_qp>(s.input);
    request.makes(Kind::kQp);
    request.type = IB_UVERBS_QPT_XRC_TGT;
    core.user_handle = s.user_handle();
    core.pd_handle = s.handle(Kind::kXrcd);
    core.qpn = s.qp_number();
    if (!s.input.one_in(8)) core.qp_type = IB_UVERBS_QPT_XRC_TGT;
}

void modify_qp(Session& s, Request& request, std::uint32_t state = ~0u) {
    auto& core = request.core_as<ib_uverbs_ex_modify_qp>(s.input).base;
    if (!request.extended) request.core_length = sizeof core;
    std::uint8_t type = 0;
    core.qp_handle = s.handle(Kind::kQp, &type);
    if (state == ~0u) state = s.input.below(8);
    core.qp_state = static_cast<std::uint8_t>(state);
    core.attr_mask = s.input.one_in(16) ? s.input.word() : attributes_for(state, type);
    if (s.input.one_in(16)) return;
    core.dest.dlid = device::kFirstLid;
    core.port_num = core.dest.port_num = s.input.one_in(8) ? 2 : 1;
    core.dest.sgid_index = 0;
    core.pkey_index = 0;
    core.path_mtu = IBV_MTU_1024;
    core.dest_qp_num = s.qp_number() & 0xffffff;
    core.qp_access_flags = s.input.below(16);
    core.timeout = core.min_rnr_timer = static_cast<std::uint8_t>(s.input.below(32));
    core.retry_cnt = core.rnr_retry = static_cast<std::uint8_t>(s.input.below(8));
    core.max_rd_atomic = core.max_dest_rd_atomic = static_cast<std::uint8_t>(s.input.below(17));
    core.cur_qp_state = static_cast<std::uint8_t>(s.input.below(8));
    core.en_sqd_async_notify = 1;
}

template <class T>
void create_srq(Session& s, Request& request) {
    auto& core = request.core_as<T>(s.input);
    request.makes(Kind::kSrq);
    core.user_handle = s.user_handle();
    core.pd_handle = s.handle(Kind::kPd);
    if (!s.input.one_in(16)) core.max_wr = s.input.byte();
    if (!s.input.one_in(16)) core.max_sge = s.input.below(32);
    if constexpr (std::is_same_v<T, ib_uverbs_create_xsrq>) {
        core.srq_type = s.input.one_in(16) ? s.input.word() : s.input.below(2);
        core.xrcd_handle = s.handle(Kind::kXrcd);
        core.cq_handle = s.handle(Kind::kCq);
    }
    auto& driver = request.driver_as<mlx5_ib_create_srq>(s.input);
    driver.buf_addr = s.address();
    driver.db_addr = s.address();
    if (!s.input.one_in(8)) driver.flags = driver.reserved0 = driver.reserved1 = 0;
}

void open_xrcd(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_open_xrcd>(s.input);
    request.makes(Kind::kXrcd);
    core.fd = s.input.pick({~0u, static_cast<std::uint32_t>(s.plain_file()), 0u, 100'000u});
    core.oflags = s.input.pick<std::uint32_t>({O_CREAT, O_CREAT | O_EXCL, 0, O_EXCL, 0x7fffffff});
}

void alloc_mw(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_alloc_mw>(s.input);
    core.pd_handle = s.handle(Kind::kPd);
    core.mw_type = static_cast<std::uint8_t>(s.input.below(4));
    request.makes(Kind::kMw);
}

// ib_uverbs_attach_mcast and _detach_mcast are the same. Few groups, so that some are found again.
void multicast(Session& s, Request& request) {
    auto& core = request.core_as<ib_uverbs_attach_mcast>(s.input);
    core.qp_handle = s.handle(Kind::kQp);
    if (!s.input.one_in(8)) core.gid[0] = 0xff;
    core.gid[15] = s.input.byte() & 3;
    core.mlid = static_cast<std::uint16_t>(0xc000 + (s.input.byte() & 1));
}

template <class T>
void named(Session& s, Request& request, std::uint32_t T::*handle, Kind kind) {
    request.core_as<T>(s.input).*handle = s.handle(kind);
}

}  // namespace

void build_plain(Session& s, Request& request, std::uint32_t number) {
    switch (number) {
        case IB_USER_VERBS_CMD_GET_CONTEXT:
            return get_context(s, request);
        case IB_USER_VERBS_CMD_QUERY_PORT:
            request.core_as<ib_uverbs_query_port>(s.input).port_num =
                static_cast<std::uint8_t>(s.input.below(4));
            return;
        case IB_USER_VERBS_CMD_ALLOC_PD:
            request.core_as<std::uint64_t>(s.input);
            return request.makes(Kind::kPd);
        case IB_USER_VERBS_CMD_DEALLOC_PD:
            return named(s, request, &ib_uverbs_dealloc_pd::pd_handle, Kind::kPd);
        case IB_USER_VERBS_CMD_REG_MR:
            return reg_mr(s, request);
        case IB_USER_VERBS_CMD_REREG_MR:
            return rereg_mr(s, request);
        case IB_USER_VERBS_CMD_DEREG_MR:
            return named(s, request, &ib_uverbs_dereg_mr::mr_handle, Kind::kMr);
        case IB_USER_VERBS_CMD_ALLOC_MW:
            return alloc_mw(s, request);
        case IB_USER_VERBS_CMD_DEALLOC_MW:
            return named(s, request, &ib_uverbs_dealloc_mw::mw_handle, Kind::kMw);
        case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
            request.core_as<std::uint64_t>(s.input);
            return request.makes(Kind::kChannel);
        case IB_USER_VERBS_CMD_CREATE_CQ:
            return create_cq<ib_uverbs_create_cq>(s, request);
        case IB_USER_VERBS_CMD_RESIZE_CQ:
            return resize_cq(s, request);
        case IB_USER_VERBS_CMD_DESTROY_CQ:
            return named(s, request, &ib_uverbs_destroy_cq::cq_handle, Kind::kCq);
        case IB_USER_VERBS_CMD_CREATE_QP:
            return create_qp<ib_uverbs_create_qp>(s, request);
        case IB_USER_VERBS_CMD_OPEN_QP:
            return open_qp(s, request);
        case IB_USER_VERBS_CMD_MODIFY_QP:
            return modify_qp(s, request);
        case IB_USER_VERBS_CMD_QUERY_QP:
            return named(s, request, &ib_uverbs_query_qp::qp_handle, Kind::kQp);
        case IB_USER_VERBS_CMD_DESTROY_QP:
            return named(s, request, &ib_uverbs_destroy_qp::qp_handle, Kind::kQp);
        case IB_USER_VERBS_CMD_CREATE_SRQ:
            return create_srq<ib_uverbs_create_srq>(s, request);
        case IB_USER_VERBS_CMD_CREATE_XSRQ:
            return create_srq<ib_uverbs_create_xsrq>(s, request);
        case IB_USER_VERBS_CMD_MODIFY_SRQ: {
            auto& core = request.core_as<ib_uverbs_modify_srq>(s.input);
            core.srq_handle = s.handle(Kind::kSrq);
            core.attr_mask = s.input.below(4);
            core.srq_limit = s.input.byte();
            return;
        }
        case IB_USER_VERBS_CMD_QUERY_SRQ:
            return named(s, request, &ib_uverbs_query_srq::srq_handle, Kind::kSrq);
        case IB_USER_VERBS_CMD_DESTROY_SRQ:
            return named(s, request, &ib_uverbs_destroy_srq::srq_handle, Kind::kSrq);
        case IB_USER_VERBS_CMD_OPEN_XRCD:
            return open_xrcd(s, request);
        case IB_USER_VERBS_CMD_CLOSE_XRCD:
            return named(s, request, &ib_uverbs_close_xrcd::xrcd_handle, Kind::kXrcd);
        case IB_USER_VERBS_CMD_ATTACH_MCAST:
        case IB_USER_VERBS_CMD_DETACH_MCAST:
            return multicast(s, request);
        default:
            request.core_length = s.input.below(64);
            s.input.bytes(request.core, request.core_length);
    }
}

void build_extended(Session& s, Request& request, std::uint32_t number) {
    switch (number) {
        case IB_USER_VERBS_EX_CMD_CREATE_CQ:
            return create_cq<ib_uverbs_ex_create_cq>(s, request);
        case IB_USER_VERBS_EX_CMD_CREATE_QP:
            return create_qp<ib_uverbs_ex_create_qp>(s, request);
        case IB_USER_VERBS_EX_CMD_MODIFY_QP:
            return modify_qp(s, request);
        default:
            request.core_length = s.input.below(64);
            s.input.bytes(request.core, request.core_length);
    }
}

}  // namespace softhca::fuzz
