// SPDX-License-Identifier: BSD-2-Clause
// What doorbell_count posts on: the device, and QPs of each kind with one that answers.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace doorbell_count {

[[noreturn]] inline void die(const char* what) {
    std::fprintf(stderr, "doorbell_count: %s: %m\n", what);
    std::exit(2);
}
template <typename T>
T* need(T* object, const char* what) {
    if (object == nullptr) die(what);
    return object;
}

inline bool is(const char* variable, const char* value) {
    const char* text = std::getenv(variable);
    return text != nullptr && std::strcmp(text, value) == 0;
}

inline constexpr std::uint32_t kUnit = 16;
inline constexpr std::size_t kMemory = 1 << 20;

struct Device {
    ibv_context* context;
    ibv_pd* pd;
    ibv_cq* cq;
    ibv_mr* mr;
    std::uint8_t* memory;
    ibv_xrcd* xrcd;
    ibv_srq* xsrq;
    std::uint32_t xsrqn;
    std::uint16_t lid;
    bool prefer = !is("MLX5_POST_SEND_PREFER_BF", "0");
    bool shut = std::getenv("MLX5_SHUT_UP_BF") != nullptr && !is("MLX5_SHUT_UP_BF", "0");
    bool static_uars = is("SOFTHCA_UAR", "static");
};

inline Device open_device() {
    Device d = {};
    d.prefer = !is("MLX5_POST_SEND_PREFER_BF", "0");
    d.shut = std::getenv("MLX5_SHUT_UP_BF") != nullptr && !is("MLX5_SHUT_UP_BF", "0");
    d.static_uars = is("SOFTHCA_UAR", "static");
    ibv_device** list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    d.context = need(list[0] != nullptr ? ibv_open_device(list[0]) : nullptr, "opening a device");
    ibv_free_device_list(list);
    d.pd = need(ibv_alloc_pd(d.context), "ibv_alloc_pd");
    d.cq = need(ibv_create_cq(d.context, 4096, nullptr, nullptr, 0), "ibv_create_cq");
    d.memory = static_cast<std::uint8_t*>(need(std::aligned_alloc(4096, kMemory), "memory"));
    std::memset(d.memory, 0, kMemory);
    d.mr = need(ibv_reg_mr(d.pd, d.memory, kMemory,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
                "ibv_reg_mr");
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    domain.oflags = O_CREAT;
    d.xrcd = need(ibv_open_xrcd(d.context, &domain), "ibv_open_xrcd");
    ibv_srq_init_attr_ex queue = {};
    queue.attr = {4096, 1, 0};
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                      IBV_SRQ_INIT_ATTR_PD;
    queue.srq_type = IBV_SRQT_XRC;
    queue.pd = d.pd;
    queue.xrcd = d.xrcd;
    queue.cq = d.cq;
    d.xsrq = need(ibv_create_srq_ex(d.context, &queue), "ibv_create_srq_ex");
    if (ibv_get_srq_num(d.xsrq, &d.xsrqn) != 0) die("ibv_get_srq_num");
    ibv_port_attr port = {};
    if (ibv_query_port(d.context, 1, &port) != 0) die("ibv_query_port");
    d.lid = port.lid;
    return d;
}

inline void close_device(const Device& d) {
    if (ibv_destroy_srq(d.xsrq) != 0 || ibv_close_xrcd(d.xrcd) != 0 || ibv_dereg_mr(d.mr) != 0 ||
        ibv_destroy_cq(d.cq) != 0 || ibv_dealloc_pd(d.pd) != 0 || ibv_close_device(d.context) != 0)
        die("closing the device");
    std::free(d.memory);
}

inline void modify(ibv_qp* qp, std::uint32_t peer, const Device& d, ibv_qp_type type) {
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = 0x1111;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (type != IBV_QPT_UC) a.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    const bool ud = type == IBV_QPT_UD;
    if (ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                          (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) != 0)
        die("to INIT");
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer;
    a.ah_attr.dlid = d.lid;
    a.ah_attr.port_num = 1;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    int mask = IBV_QP_STATE;
    if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (ibv_modify_qp(qp, &a, mask) != 0) die("to RTR");
    if (type == IBV_QPT_XRC_RECV) return;
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if (ibv_modify_qp(qp, &a, mask) != 0) die("to RTS");
}

// A QP that posts, and one that answers; `blueflame`: its uUAR can.
struct Subject {
    const Device& d;
    std::string name;
    ibv_qp_type type;
    bool blueflame;
    ibv_qp* qp;
    ibv_qp_ex* ex;
    ibv_qp* far;
    ibv_ah* ah = nullptr;

    Subject(const Device& device, std::string title, ibv_qp_type kind, bool can,
            ibv_pd* pd = nullptr)
        : d(device), name(std::move(title)), type(kind), blueflame(can) {
        ibv_qp_init_attr_ex a = {};
        a.send_cq = a.recv_cq = d.cq;
        a.cap = {64, 1, 30, 1, 400};
        if (type == IBV_QPT_XRC_SEND) a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
        a.qp_type = type;
        a.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        a.pd = pd != nullptr ? pd : d.pd;
        a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
        if (type != IBV_QPT_UD) a.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
        if (reliable())
            a.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        qp = need(ibv_create_qp_ex(d.context, &a), "ibv_create_qp_ex");
        ex = ibv_qp_to_qp_ex(qp);
        ibv_qp_init_attr_ex f = {};
        f.comp_mask = IBV_QP_INIT_ATTR_PD;
        f.pd = d.pd;
        f.qp_type = type;
        f.send_cq = f.recv_cq = d.cq;
        f.cap = {1, 4096, 1, 1, 0};
        if (type == IBV_QPT_XRC_SEND) {
            f = {};
            f.qp_type = IBV_QPT_XRC_RECV;
            f.comp_mask = IBV_QP_INIT_ATTR_XRCD;
            f.xrcd = d.xrcd;
        }
        far = need(ibv_create_qp_ex(d.context, &f), "ibv_create_qp_ex");
        modify(far, qp->qp_num, d, f.qp_type);
        modify(qp, far->qp_num, d, type);
        if (type == IBV_QPT_UD) {
            ibv_ah_attr route = {};
            route.dlid = d.lid;
            route.port_num = 1;
            ah = need(ibv_create_ah(d.pd, &route), "ibv_create_ah");
        }
    }
    Subject(const Subject&) = delete;
    ~Subject() {
        if (ibv_destroy_qp(qp) != 0 || ibv_destroy_qp(far) != 0) die("ibv_destroy_qp");
        if (ah != nullptr && ibv_destroy_ah(ah) != 0) die("ibv_destroy_ah");
    }

    bool reliable() const { return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND; }

    // Units of the WQE before the data: control, and address vector (UD) or SRQ number (XRC).
    std::uint32_t head() const {
        return 1 + (type == IBV_QPT_UD ? 3 : 0) + (type == IBV_QPT_XRC_SEND ? 1 : 0);
    }

    void receives(std::uint32_t count) const {
        for (std::uint32_t i = 0; i < count; ++i) {
            ibv_sge sge = {reinterpret_cast<std::uint64_t>(d.memory), 8192, d.mr->lkey};
            ibv_recv_wr wr = {};
            ibv_recv_wr* bad = nullptr;
            wr.wr_id = 1;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            const int error = type == IBV_QPT_XRC_SEND ? ibv_post_srq_recv(d.xsrq, &wr, &bad)
                                                       : ibv_post_recv(far, &wr, &bad);
            if (error != 0) die("posting a receive");
        }
    }

    void drain(std::uint32_t sends, std::uint32_t received) const {
        while (sends + received > 0) {
            ibv_wc wc;
            const int count = ibv_poll_cq(d.cq, 1, &wc);
            if (count < 0) die("ibv_poll_cq");
            if (count == 0) continue;
            if (wc.status != IBV_WC_SUCCESS) {
                std::fprintf(stderr, "doorbell_count: %s on %s\n", ibv_wc_status_str(wc.status),
                             name.c_str());
                std::exit(2);
            }
            --((wc.opcode & IBV_WC_RECV) != 0 ? received : sends);
        }
    }
};

}  // namespace doorbell_count
