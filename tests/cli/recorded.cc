// SPDX-License-Identifier: BSD-2-Clause
// A verbs program whose run record is known: cli_recorded WHAT. Two threads, each with a CQ and an
// RC queue pair that is connected to itself, meet at a barrier. Then each does ROUNDS times: a list
// of four RDMA writes, the last of them signaled; a poll that finds it; an inline write; a poll.
// At the end the second thread posts by ibv_wr_start(3). The first thread's QP is in a thread
// domain, the second one's is not. The first thread's CQ is a plain one, the second one's is polled
// by ibv_start_poll(3).
//
// The program prints "ready QPN QPN CQN CQN" and waits for the end of its input. WHAT says how it
// ends: "destroy" destroys everything, "exit" and "_exit" leave that to the device. "fork" lets a
// child do the same after the parent, "limit" does not let the record grow any more before the
// threads begin.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kRounds = 50, kExtendedPosts = 10;
constexpr std::size_t kBytes = 64, kMemory = 65536;

void require(bool good, const char* what) {
    if (good) return;
    std::perror(what);
    std::exit(1);
}

struct Side {
    ibv_context* context = nullptr;
    ibv_td* td = nullptr;
    ibv_pd *pd = nullptr, *domain = nullptr;
    ibv_cq* cq = nullptr;
    ibv_cq_ex* batch = nullptr;  // the same CQ, if it is polled by ibv_start_poll()
    ibv_qp* qp = nullptr;
    ibv_mr* mr = nullptr;
    char* memory = nullptr;
    bool vary = false;  // each list has another length, so that nothing can be compressed
};

pthread_barrier_t g_barrier;

void connect(ibv_qp* qp, std::uint16_t lid) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    require(!ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
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

void make(ibv_context* context, ibv_pd* pd, std::uint16_t lid, bool second, Side& side) {
    side.context = context;
    side.pd = side.domain = pd;
    if (!second) {
        ibv_td_init_attr td{};
        side.td = ibv_alloc_td(context, &td);
        require(side.td, "ibv_alloc_td");
        ibv_parent_domain_init_attr domain{};
        domain.pd = pd;
        domain.td = side.td;
        side.domain = ibv_alloc_parent_domain(context, &domain);
        require(side.domain, "ibv_alloc_parent_domain");
        side.cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    } else {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 64;
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        side.batch = ibv_create_cq_ex(context, &attr);
        require(side.batch, "ibv_create_cq_ex");
        side.cq = ibv_cq_ex_to_cq(side.batch);
    }
    require(side.cq, "ibv_create_cq");
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = side.cq;
    attr.cap.max_send_wr = 32;
    attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = 32;
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = side.domain;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    side.qp = ibv_create_qp_ex(context, &attr);
    require(side.qp, "ibv_create_qp_ex");
    connect(side.qp, lid);
    side.memory = static_cast<char*>(std::aligned_alloc(4096, kMemory));
    side.mr =
        ibv_reg_mr(pd, side.memory, kMemory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    require(side.mr, "ibv_reg_mr");
}

void poll_one(Side& side) {
    if (side.batch) {
        ibv_poll_cq_attr attr{};
        int result;
        while ((result = ibv_start_poll(side.batch, &attr)) == ENOENT) {
        }
        require(result == 0 && side.batch->status == IBV_WC_SUCCESS, "completion");
        ibv_end_poll(side.batch);
        return;
    }
    ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(side.cq, 1, &wc)) == 0) {
    }
    require(found == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

void post(Side& side, int count, std::uint32_t bytes, unsigned flags) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(side.memory), bytes, side.mr->lkey};
    ibv_send_wr list[4]{};
    for (int i = 0; i < count; ++i) {
        list[i].sg_list = &sge;
        list[i].num_sge = 1;
        list[i].opcode = IBV_WR_RDMA_WRITE;
        list[i].send_flags = flags | (i + 1 == count ? unsigned{IBV_SEND_SIGNALED} : 0u);
        list[i].wr.rdma.remote_addr = sge.addr + kMemory / 2;
        list[i].wr.rdma.rkey = side.mr->rkey;
        list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
    }
    ibv_send_wr* bad;
    require(!ibv_post_send(side.qp, list, &bad), "ibv_post_send");
    poll_one(side);
}

void* work(void* argument) {
    Side& side = *static_cast<Side*>(argument);
    pthread_barrier_wait(&g_barrier);
    for (int round = 0; round < kRounds; ++round) {
        post(side, 4,
             static_cast<std::uint32_t>(side.vary ? kBytes + static_cast<std::size_t>(round)
                                                  : kBytes),
             0);
        post(side, 1, 8, IBV_SEND_INLINE);
    }
    pthread_barrier_wait(&g_barrier);
    for (int i = 0; side.batch && i < kExtendedPosts; ++i) {
        ibv_qp_ex* qp = ibv_qp_to_qp_ex(side.qp);
        ibv_wr_start(qp);
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(qp, side.mr->rkey, reinterpret_cast<std::uintptr_t>(side.memory) + 4096);
        ibv_wr_set_sge(qp, side.mr->lkey, reinterpret_cast<std::uintptr_t>(side.memory) + 128, 100);
        require(!ibv_wr_complete(qp), "ibv_wr_complete");
        poll_one(side);
    }
    return nullptr;
}

void run(const std::string& what) {
    ibv_device** list = ibv_get_device_list(nullptr);
    require(list && list[0], "ibv_get_device_list");
    ibv_context* context = ibv_open_device(list[0]);
    require(context, "ibv_open_device");
    ibv_free_device_list(list);
    ibv_port_attr port{};
    require(!ibv_query_port(context, 1, &port), "ibv_query_port");
    ibv_pd* pd = ibv_alloc_pd(context);
    require(pd, "ibv_alloc_pd");
    Side sides[2];
    for (int i = 0; i < 2; ++i)
        make(context, pd, port.lid, i == 1, sides[i]);
    if (what == "limit") {
        const rlimit least{512, 512};
        require(!setrlimit(RLIMIT_FSIZE, &least), "setrlimit");
    }
    require(!pthread_barrier_init(&g_barrier, nullptr, 2), "pthread_barrier_init");
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        sides[i].vary = what == "vary" || what == "limit";
        require(!pthread_create(&threads[i], nullptr, work, &sides[i]), "pthread_create");
    }
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    std::printf("ready %u %u %u %u\n", sides[0].qp->qp_num, sides[1].qp->qp_num,
                sides[0].cq->handle, sides[1].cq->handle);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    if (what == "exit") std::exit(0);
    if (what == "_exit") _exit(0);
    for (Side& side : sides) {
        require(!ibv_destroy_qp(side.qp) && !ibv_destroy_cq(side.cq) && !ibv_dereg_mr(side.mr),
                "destroying");
        if (side.td)
            require(!ibv_dealloc_pd(side.domain) && !ibv_dealloc_td(side.td), "destroying");
        std::free(side.memory);
    }
    require(!ibv_dealloc_pd(pd) && !ibv_close_device(context), "closing");
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2, "usage: cli_recorded WHAT");
    const std::string what = argv[1];
    run(what);
    if (what != "fork") return 0;
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        run(what);
        std::exit(0);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child");
    return 0;
}
