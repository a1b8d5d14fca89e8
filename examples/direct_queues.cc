// SPDX-License-Identifier: BSD-2-Clause
// The queues of the direct path on verbs objects of one's own: Mlx5SendQueue, Mlx5ReceiveQueue,
// Mlx5SharedReceiveQueue, Mlx5CompletionQueue, SpinLock. The same by libibverbs: VerbsSendQueue,
// VerbsReceiveQueue, VerbsSharedReceiveQueue, VerbsCompletionQueue.
//
// An EndpointSet creates context, PD and memory here. The program adds a CQ, an SRQ and two QPs,
// and connects them with each other.
#include <heddle/endpoint.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace post = heddle::post;

namespace {

struct Destroy {
    void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
    void operator()(ibv_srq* srq) const { ibv_destroy_srq(srq); }
    void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
};
using Cq = std::unique_ptr<ibv_cq, Destroy>;
using Srq = std::unique_ptr<ibv_srq, Destroy>;
using Qp = std::unique_ptr<ibv_qp, Destroy>;

// `srq`: nullptr gives the QP a receive queue of its own.
Qp make_qp(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.srq = srq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {16, srq == nullptr ? 16u : 0u, 1, 1, 60};
    return Qp(ibv_create_qp(pd, &attributes));
}

// Takes a QP to RTS, connected to one of this process on the same port. On Ethernet sgid_index is
// 0, which suits softhca; on an adapter it is the index of the GID in `peer`.
bool connect(ibv_qp* qp, const heddle::QpAddress& peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    if (ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return false;
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qpn;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.port_num = 1;
    a.ah_attr.dlid = peer.lid;
    if (peer.ethernet) {
        a.ah_attr.is_global = 1;
        std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
        a.ah_attr.grh.hop_limit = 64;
    }
    if (ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return false;
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 18;
    a.retry_cnt = 6;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    return ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

// Sends one message over `send` into `receives` and waits for both completions.
template <class Send, class Receives, class Completions>
bool exchange(Send& send, Receives& receives, Completions& completions,
              const heddle::Endpoint& memory) {
    std::byte* const from = memory.buffer();
    std::byte* const to = from + 64;
    from[0] = std::byte{42};
    to[0] = std::byte{0};
    const ibv_sge into{reinterpret_cast<std::uintptr_t>(to), 64, memory.mr()->lkey};
    if (receives.post_now({&into, 1}, 1) != post::Posted::kOk) return false;
    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(from), 8, memory.mr()->lkey};
    post::WorkRequest request;
    request.flags = post::kSignaled;
    request.sges = {&sge, 1};
    request.id = 2;
    if (send.post_now(request) != post::Posted::kOk) return false;
    std::uint64_t ids = 0;
    for (unsigned found = 0; found < 2;) {
        post::Completion done[2];
        const unsigned more = completions.poll(done, 2);
        for (unsigned i = 0; i < more; ++i) {
            if (done[i].status != IBV_WC_SUCCESS) return false;
            ids += done[i].id;
        }
        found += more;
    }
    return ids == 3 && to[0] == std::byte{42};
}

// Two QPs of this process: the first sends, the second receives, from `srq` if there is one.
struct Pair {
    Pair(const heddle::Endpoint& memory, bool shared)
        : cq(ibv_create_cq(memory.context(), 64, nullptr, nullptr, 0)) {
        if (shared) {
            ibv_srq_init_attr attributes{};
            attributes.attr = {16, 1, 0};
            srq.reset(ibv_create_srq(memory.pd(), &attributes));
        }
        a = make_qp(memory.pd(), cq.get(), nullptr);
        b = make_qp(memory.pd(), cq.get(), srq.get());
        heddle::QpAddress address = memory.address();
        address.qpn = b->qp_num;
        connected = connect(a.get(), address);
        address.qpn = a->qp_num;
        connected = connect(b.get(), address) && connected;
    }
    Cq cq;
    Srq srq;
    Qp a, b;
    bool connected = false;
};

template <class Lock>
bool by_direct_path(const heddle::Endpoint& memory, bool shared) {
    const Pair pair(memory, shared);
    post::Mlx5CompletionQueue<Lock> completions(pair.cq.get());
    post::Mlx5SendQueue<Lock> send(pair.a.get(), false, 60, true, 16);
    completions.add(send);
    if (shared) {
        post::Mlx5SharedReceiveQueue<Lock> receives(pair.srq.get());
        completions.add(receives, pair.b->qp_num);
        return pair.connected && exchange(send, receives, completions, memory);
    }
    post::Mlx5ReceiveQueue<Lock> receives(pair.b.get());
    completions.add(receives);
    return pair.connected && exchange(send, receives, completions, memory);
}

bool by_verbs(const heddle::Endpoint& memory, bool shared) {
    const Pair pair(memory, shared);
    post::VerbsCompletionQueue completions(pair.cq.get());
    post::VerbsSendQueue<post::SingleThreaded> send(pair.a.get(), 1);
    if (shared) {
        post::VerbsSharedReceiveQueue<post::SpinLock> receives(pair.srq.get(), 1);
        return pair.connected && exchange(send, receives, completions, memory);
    }
    post::VerbsReceiveQueue receives(pair.b.get());
    return pair.connected && exchange(send, receives, completions, memory);
}

}  // namespace

int main() {
    try {
        const heddle::EndpointSet set("", heddle::Category::kStatic, 1);
        for (const bool shared : {false, true}) {
            if (!by_verbs(set[0], shared)) return 1;
            if (!heddle::device().mlx5) continue;
            if (!by_direct_path<post::SingleThreaded>(set[0], shared)) return 1;
            if (!by_direct_path<post::SpinLock>(set[0], shared)) return 1;
        }
        std::printf("all messages arrived\n");
        return 0;
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "direct_queues: %s\n", error.what());
        return 1;
    }
}
