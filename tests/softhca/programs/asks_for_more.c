/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the first device for things that softhca has not: raw packet queue pairs twice, and
 * memory on a dma-buf. Succeeds if all are refused as a device without them refuses them. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static int refused(const void* object, const char* what) {
    if (object == NULL && (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT)) return 1;
    fprintf(stderr, "%s: %s, errno %d\n", what, object != NULL ? "made" : "refused", errno);
    return 0;
}

int main(void) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
    if (context == NULL) return 2;
    struct ibv_pd* pd = ibv_alloc_pd(context);
    struct ibv_cq* cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    if (pd == NULL || cq == NULL) return 2;
    int good = 1;
    for (int i = 0; i < 2; ++i) {
        struct ibv_qp_init_attr wanted = {
            .send_cq = cq,
            .recv_cq = cq,
            .qp_type = IBV_QPT_RAW_PACKET,
            .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
        good &= refused(ibv_create_qp(pd, &wanted), "a raw packet queue pair");
    }
    good &= refused(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 1, IBV_ACCESS_LOCAL_WRITE), "a dma-buf");
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(list);
    return good ? 0 : 1;
}
