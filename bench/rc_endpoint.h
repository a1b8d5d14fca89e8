// SPDX-License-Identifier: BSD-2-Clause
// One side of a reliable connection with its CQs and memory, as perftest sets it up; plain verbs.
// Meant for measuring programs: whatever fails ends the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#include "experiments/common/measure.h"

namespace heddle::bench {

struct RemoteSide {
    std::uint32_t qpn;
    std::uint32_t rkey;
    std::uint64_t address;
    std::uint16_t lid;
};

class RcEndpoint {
public:
    RcEndpoint(std::size_t bytes, std::uint32_t depth) : bytes_(bytes) {
        ibv_device** list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
        context_ =
            need(list[0] != nullptr ? ibv_open_device(list[0]) : nullptr, "opening a device");
        ibv_free_device_list(list);
        pd_ = need(ibv_alloc_pd(context_), "ibv_alloc_pd");
        memory_ = static_cast<std::uint8_t*>(need(std::aligned_alloc(4096, bytes), "memory"));
        std::memset(memory_, 0, bytes);
        mr_ =
            need(ibv_reg_mr(pd_, memory_, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                 "ibv_reg_mr");
        const int entries = static_cast<int>(2 * depth);
        send_cq_ = need(ibv_create_cq(context_, entries, nullptr, nullptr, 0), "ibv_create_cq");
        receive_cq_ = need(ibv_create_cq(context_, entries, nullptr, nullptr, 0), "ibv_create_cq");
        qp_ = create_qp(depth);
    }

    // Another QP on the same CQs; it belongs to the process to its end.
    ibv_qp* create_qp(std::uint32_t depth) const {
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = send_cq_;
        attributes.recv_cq = receive_cq_;
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap = {depth, depth, 1, 1, 64};
        return need(ibv_create_qp(pd_, &attributes), "ibv_create_qp");
    }

    RemoteSide address() const {
        ibv_port_attr port = {};
        if (ibv_query_port(context_, 1, &port) != 0) give_up("ibv_query_port");
        return {qp_->qp_num, mr_->rkey, reinterpret_cast<std::uint64_t>(memory_), port.lid};
    }

    void connect(const RemoteSide& remote) {
        remote_ = remote;
        connect(qp_, remote.qpn, remote.lid);
    }

    static void connect(ibv_qp* qp, std::uint32_t peer, std::uint16_t lid) {
        ibv_qp_attr a = {};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (ibv_modify_qp(
                qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
            give_up("modifying a QP to INIT");
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_4096;
        a.dest_qp_num = peer;
        a.ah_attr.dlid = lid;
        a.ah_attr.port_num = 1;
        a.max_dest_rd_atomic = 1;
        a.min_rnr_timer = 12;
        if (ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) !=
            0)
            give_up("modifying a QP to RTR");
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 14;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 1;
        if (ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
            give_up("modifying a QP to RTS");
    }

    void post(ibv_wr_opcode opcode, std::size_t from, std::size_t to, std::uint32_t length,
              unsigned flags) {
        ibv_sge piece = {reinterpret_cast<std::uint64_t>(memory_) + from, length, mr_->lkey};
        ibv_send_wr wr = {};
        ibv_send_wr* bad = nullptr;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = flags;
        wr.wr.rdma.remote_addr = remote_.address + to;
        wr.wr.rdma.rkey = remote_.rkey;
        if (ibv_post_send(qp_, &wr, &bad) != 0) give_up("ibv_post_send");
    }

    void post_receive(std::size_t at, std::uint32_t length) {
        ibv_sge piece = {reinterpret_cast<std::uint64_t>(memory_) + at, length, mr_->lkey};
        ibv_recv_wr wr = {};
        ibv_recv_wr* bad = nullptr;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        if (ibv_post_recv(qp_, &wr, &bad) != 0) give_up("ibv_post_recv");
    }

    static void wait(ibv_cq* cq, int count = 1) {
        ibv_wc wc[16];
        while (count > 0) {
            const int got = ibv_poll_cq(cq, std::min(count, 16), wc);
            if (got < 0) give_up("ibv_poll_cq");
            for (int i = 0; i < got; ++i) {
                if (wc[i].status == IBV_WC_SUCCESS) continue;
                std::fprintf(stderr, "a work request failed: %s\n",
                             ibv_wc_status_str(wc[i].status));
                std::exit(1);
            }
            count -= got;
        }
    }

    ibv_cq* send_cq() const { return send_cq_; }
    ibv_cq* receive_cq() const { return receive_cq_; }
    ibv_qp* qp() const { return qp_; }
    std::uint8_t* memory() const { return memory_; }
    std::size_t bytes() const { return bytes_; }
    const RemoteSide& remote() const { return remote_; }

private:
    std::size_t bytes_;
    ibv_context* context_;
    ibv_pd* pd_;
    std::uint8_t* memory_;
    ibv_mr* mr_;
    ibv_cq* send_cq_;
    ibv_cq* receive_cq_;
    ibv_qp* qp_;
    RemoteSide remote_ = {};
};

}  // namespace heddle::bench
