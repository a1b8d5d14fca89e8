// SPDX-License-Identifier: BSD-2-Clause
// A verbs program that tests of `softhca stat`, `top` and `clean` look at: one context, PD and MR,
// two CQs, an SRQ and two RC queue pairs connected to each other. It says "ready" and obeys its
// standard input:
//   write N   posts N signalled RDMA writes of 64 bytes one by one, and polls each; says "done"
//   send N    the same with SENDs that the SRQ receives
// At the end of the input it destroys everything and exits 0.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 64 };

static void require(int good, const char* what) {
    if (good) return;
    perror(what);
    exit(1);
}

static void poll_one(struct ibv_cq* cq) {
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
    }
    require(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

static void connect_qp(struct ibv_qp* qp, uint32_t remote, uint16_t lid) {
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    require(!ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = remote;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.dlid = lid;
    attr.ah_attr.port_num = 1;
    require(!ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    require(!ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            "RTS");
}

int main(void) {
    struct ibv_device** devices = ibv_get_device_list(NULL);
    require(devices && devices[0], "device");
    struct ibv_context* context = ibv_open_device(devices[0]);
    require(context != NULL, "ibv_open_device");
    ibv_free_device_list(devices);
    struct ibv_port_attr port;
    require(!ibv_query_port(context, 1, &port), "ibv_query_port");
    struct ibv_pd* pd = ibv_alloc_pd(context);
    char* buffer = calloc(2, kBytes);
    struct ibv_mr* mr =
        ibv_reg_mr(pd, buffer, 2 * kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_cq* send_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_cq* recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
    require(pd && mr && send_cq && recv_cq && srq, "objects");
    struct ibv_qp_init_attr init = {.send_cq = send_cq,
                                    .recv_cq = recv_cq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 16, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    struct ibv_qp* other = ibv_create_qp(pd, &init);
    require(qp && other, "ibv_create_qp");
    connect_qp(qp, other->qp_num, port.lid);
    connect_qp(other, qp->qp_num, port.lid);
    printf("ready %u %u\n", qp->qp_num, other->qp_num);
    fflush(stdout);

    struct ibv_sge from = {.addr = (uintptr_t)buffer, .length = kBytes, .lkey = mr->lkey};
    struct ibv_sge to = {.addr = (uintptr_t)buffer + kBytes, .length = kBytes, .lkey = mr->lkey};
    char verb[16];
    int count;
    while (scanf("%15s %d", verb, &count) == 2) {
        const int send = strcmp(verb, "send") == 0;
        for (int i = 0; i < count; ++i) {
            struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
            struct ibv_send_wr request = {.sg_list = &from, .num_sge = 1}, *bad_request;
            request.opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
            request.wr.rdma.remote_addr = to.addr;
            request.wr.rdma.rkey = mr->rkey;
            require(!send || !ibv_post_srq_recv(srq, &receive, &bad_receive), "ibv_post_srq_recv");
            require(!ibv_post_send(qp, &request, &bad_request), "ibv_post_send");
            poll_one(send_cq);
            if (send) poll_one(recv_cq);
        }
        printf("done\n");
        fflush(stdout);
    }
    require(!ibv_destroy_qp(qp) && !ibv_destroy_qp(other) && !ibv_destroy_srq(srq) &&
                !ibv_destroy_cq(send_cq) && !ibv_destroy_cq(recv_cq) && !ibv_dereg_mr(mr) &&
                !ibv_dealloc_pd(pd) && !ibv_close_device(context),
            "destroy");
    free(buffer);
    return 0;
}
