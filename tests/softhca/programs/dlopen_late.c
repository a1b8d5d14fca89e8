// SPDX-License-Identifier: BSD-2-Clause
// dlopen_late: a C program without libibverbs that loads it while it runs, in a scope of its own
// (RTLD_LOCAL, as plug-ins are loaded), moves some bytes through the device, unloads it, and does
// so again. Exits with 0 when all went well.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                 \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "dlopen_late: line %d: %s failed\n", __LINE__, #condition); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static void* library;

// Inline functions of verbs.h call through the context; the rest comes from the loaded library.
#define CALL(name) ((__typeof__(&name))load(#name))

static void* load(const char* name) {
    void* symbol = dlsym(library, name);
    NEED(symbol != NULL);
    return symbol;
}

static void connect_to(struct ibv_qp* qp, uint32_t peer, uint16_t lid) {
    struct ibv_qp_attr a;
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    NEED(CALL(ibv_modify_qp)(
             qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer;
    a.ah_attr.dlid = lid;
    a.ah_attr.port_num = 1;
    a.max_dest_rd_atomic = 1;
    NEED(CALL(ibv_modify_qp)(qp, &a,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                 IBV_QP_MIN_RNR_TIMER) == 0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    NEED(CALL(ibv_modify_qp)(qp, &a,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void once(void) {
    int count = 0;
    struct ibv_device** list = CALL(ibv_get_device_list)(&count);
    NEED(list != NULL && count == 1);
    struct ibv_context* context = CALL(ibv_open_device)(list[0]);
    NEED(context != NULL);
    CALL(ibv_free_device_list)(list);
    struct ibv_pd* pd = CALL(ibv_alloc_pd)(context);
    struct ibv_cq* cq = CALL(ibv_create_cq)(context, 16, NULL, NULL, 0);
    char* memory = calloc(1, 8192);
    NEED(pd != NULL && cq != NULL && memory != NULL);
    // verbs.h makes a macro of ibv_reg_mr.
    struct ibv_mr* (*reg_mr)(struct ibv_pd*, void*, size_t, int) = load("ibv_reg_mr");
    struct ibv_mr* mr = reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    NEED(mr != NULL);
    struct ibv_qp_init_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    struct ibv_qp* a = CALL(ibv_create_qp)(pd, &attributes);
    struct ibv_qp* b = CALL(ibv_create_qp)(pd, &attributes);
    NEED(a != NULL && b != NULL);
    connect_to(a, b->qp_num, 1);
    connect_to(b, a->qp_num, 1);
    strcpy(memory, "through the eye of a heddle");
    struct ibv_sge piece = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_send_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
    wr.wr.rdma.rkey = mr->rkey;
    NEED(ibv_post_send(a, &wr, &bad) == 0);
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    NEED(wc.status == IBV_WC_SUCCESS);
    NEED(strcmp(memory + 4096, memory) == 0);
    NEED(CALL(ibv_destroy_qp)(a) == 0 && CALL(ibv_destroy_qp)(b) == 0);
    NEED(CALL(ibv_dereg_mr)(mr) == 0);
    NEED(CALL(ibv_destroy_cq)(cq) == 0);
    NEED(CALL(ibv_dealloc_pd)(pd) == 0);
    NEED(CALL(ibv_close_device)(context) == 0);
    free(memory);
}

int main(void) {
    for (int i = 0; i < 3; ++i) {
        library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
        NEED(library != NULL);
        once();
        NEED(dlclose(library) == 0);
    }
    return 0;
}
