// SPDX-License-Identifier: BSD-2-Clause
// Endpoints of verbs_fixture.h: creation and connection of each transport, with the attributes that
// IBTA 11.2.5.2 (table 94) requires for each transition, and posting.

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "chosen_trait.h"
#include "verbs_fixture.h"

namespace softhca::test {

const char* name(Transport transport) {
    switch (transport) {
        case Transport::kRc:
            return "RC";
        case Transport::kUc:
            return "UC";
        case Transport::kUd:
            return "UD";
        case Transport::kXrc:
            return "XRC";
    }
    return "?";
}

Endpoint::Endpoint(Options wanted, Endpoint* neighbour) : options(wanted) {
    if (chosen(DeviceTrait::kSmallInline)) {  // its entries have no room for more
        options.inline_size = 0;
        options.send_sges = std::min(options.send_sges, 2u);
    }
    if (neighbour != nullptr) {
        context = neighbour->context;
        pd = neighbour->pd;
    } else {
        context = open_device();
        // The PD keeps its context, so that members may be destroyed in any order.
        pd = std::shared_ptr<ibv_pd>(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"),
                                     [keep = context](ibv_pd* p) { Destroy()(p); });
    }
    if (options.events)
        channel.reset(check(ibv_create_comp_channel(context.get()), "ibv_create_comp_channel"));
    send_cq = create_cq(context.get(), options.cq_depth, channel.get());
    receive_cq = create_cq(context.get(), options.cq_depth, channel.get());
    memory = std::make_unique<Memory>(pd.get(), options.memory);

    const bool xrc = options.transport == Transport::kXrc;
    if (xrc) {
        ibv_xrcd_init_attr domain = {};
        domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        domain.fd = options.xrcd_file;
        domain.oflags = O_CREAT;
        xrcd.reset(check(ibv_open_xrcd(context.get(), &domain), "ibv_open_xrcd"));
        ibv_srq_init_attr_ex queue = {};
        queue.attr.max_wr = options.receive_depth;
        queue.attr.max_sge = options.receive_sges;
        queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                          IBV_SRQ_INIT_ATTR_PD;
        queue.srq_type = IBV_SRQT_XRC;
        queue.pd = pd.get();
        queue.xrcd = xrcd.get();
        queue.cq = receive_cq.get();
        srq.reset(check(ibv_create_srq_ex(context.get(), &queue), "ibv_create_srq_ex"));
    } else if (options.srq) {
        srq = create_srq(pd.get(), options.receive_depth, options.receive_sges);
    }

    ibv_qp_init_attr_ex attributes = {};
    attributes.send_cq = send_cq.get();
    attributes.recv_cq = receive_cq.get();
    attributes.srq = xrc ? nullptr : srq.get();
    attributes.cap.max_send_wr = options.send_depth;
    attributes.cap.max_send_sge = options.send_sges;
    attributes.cap.max_inline_data = options.inline_size;
    if (!xrc && !options.srq) {
        attributes.cap.max_recv_wr = options.receive_depth;
        attributes.cap.max_recv_sge = options.receive_sges;
    }
    attributes.sq_sig_all = options.signal_all;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = pd.get();
    if (options.create_flags != 0) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        attributes.create_flags = options.create_flags;
    }
    attributes.qp_type = options.transport == Transport::kRc   ? IBV_QPT_RC
                         : options.transport == Transport::kUc ? IBV_QPT_UC
                         : options.transport == Transport::kUd ? IBV_QPT_UD
                                                               : IBV_QPT_XRC_SEND;
    qp.reset(check(ibv_create_qp_ex(context.get(), &attributes), "ibv_create_qp_ex"));
    options.inline_size = attributes.cap.max_inline_data;
    if (xrc) {
        ibv_qp_init_attr_ex receiving = {};
        receiving.qp_type = IBV_QPT_XRC_RECV;
        receiving.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        receiving.xrcd = xrcd.get();
        target.reset(check(ibv_create_qp_ex(context.get(), &receiving), "ibv_create_qp_ex"));
    }
}

Address Endpoint::address() const {
    Address address;
    address.qpn = qp->qp_num;
    address.target_qpn = receiver()->qp_num;
    if (options.transport == Transport::kXrc) {
        std::uint32_t number = 0;
        require(ibv_get_srq_num(srq.get(), &number), "ibv_get_srq_num");
        address.srqn = number;
    }
    address.qkey = 0x11111111;
    address.lid = port_attributes(context.get()).lid;
    const int index = is_ethernet(context.get()) ? options.gid_index : 0;
    require(ibv_query_gid(context.get(), 1, index, &address.gid), "ibv_query_gid");
    address.memory = memory->address();
    address.memory_size = memory->size();
    address.rkey = memory->mr()->rkey;
    return address;
}

void Endpoint::to_init() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = 0x11111111;
    int access = options.transport == Transport::kUc ? options.qp_access & IBV_ACCESS_REMOTE_WRITE
                                                     : options.qp_access;
    if (device_attributes(context.get()).atomic_cap == IBV_ATOMIC_NONE)
        access &= ~IBV_ACCESS_REMOTE_ATOMIC;
    attributes.qp_access_flags = static_cast<unsigned>(access);
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                     (options.transport == Transport::kUd ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    require(ibv_modify_qp(qp.get(), &attributes, mask), "to INIT, " + describe(qp.get()));
    if (target)
        require(ibv_modify_qp(target.get(), &attributes, mask),
                "to INIT, " + describe(target.get()));
}

ibv_ah_attr Endpoint::path_to(const Address& remote) const {
    ibv_ah_attr path = {};
    path.dlid = remote.lid;
    path.port_num = 1;
    if (is_ethernet(context.get())) {
        path.is_global = 1;
        path.grh.dgid = remote.gid;
        path.grh.sgid_index = options.gid_index;
        path.grh.hop_limit = 64;
    }
    return path;
}

void Endpoint::to_ready_to_receive(const Address& remote) {
    peer = remote;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = options.mtu;
    attributes.dest_qp_num = remote.target_qpn;
    attributes.ah_attr = path_to(remote);
    attributes.max_dest_rd_atomic = options.read_depth;
    attributes.min_rnr_timer = options.min_rnr_timer;
    const int connected =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int responder = connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int mask = options.transport == Transport::kUd   ? int{IBV_QP_STATE}
                     : options.transport == Transport::kRc ? responder
                                                           : connected;
    require(ibv_modify_qp(qp.get(), &attributes, mask), "to RTR, " + describe(qp.get()));
    if (target) {
        attributes.dest_qp_num = remote.qpn;
        require(ibv_modify_qp(target.get(), &attributes, responder),
                "to RTR, " + describe(target.get()));
    }
    if (options.transport == Transport::kUd)
        ah.reset(check(ibv_create_ah(pd.get(), &attributes.ah_attr), "ibv_create_ah"));
}

void Endpoint::to_ready_to_send() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = options.timeout;
    attributes.retry_cnt = options.retry_count;
    attributes.rnr_retry = options.rnr_retry;
    attributes.max_rd_atomic = options.read_depth;
    const bool reliable =
        options.transport == Transport::kRc || options.transport == Transport::kXrc;
    const int mask =
        IBV_QP_STATE | IBV_QP_SQ_PSN |
        (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                  : 0);
    require(ibv_modify_qp(qp.get(), &attributes, mask), "to RTS, " + describe(qp.get()));
}

void Endpoint::connect(const Address& remote) {
    to_init();
    to_ready_to_receive(remote);
    to_ready_to_send();
}

void Endpoint::to_error() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    require(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE), "to ERR");
    if (target) require(ibv_modify_qp(target.get(), &attributes, IBV_QP_STATE), "to ERR");
}

void Endpoint::send_wr(const Work& work, ibv_send_wr& wr, std::vector<ibv_sge>& sges) const {
    sges = work.sges;
    wr = {};
    wr.wr_id = work.id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = work.opcode;
    wr.send_flags = work.flags;
    wr.imm_data = htonl(work.immediate);
    const std::uint64_t remote = work.remote != 0 ? work.remote : peer.memory;
    const std::uint32_t rkey = work.rkey != 0 ? work.rkey : peer.rkey;
    if (options.transport == Transport::kUd) {
        wr.wr.ud.ah = ah.get();
        wr.wr.ud.remote_qpn = peer.target_qpn;
        wr.wr.ud.remote_qkey = peer.qkey;
    } else if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
               work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = work.compare_add;
        wr.wr.atomic.swap = work.swap;
    } else {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    }
    if (options.transport == Transport::kXrc) wr.qp_type.xrc.remote_srqn = peer.srqn;
}

int Endpoint::post(const Work& work) {
    ibv_send_wr wr;
    ibv_send_wr* bad = nullptr;
    std::vector<ibv_sge> sges;
    send_wr(work, wr, sges);
    return ibv_post_send(qp.get(), &wr, &bad);
}

int Endpoint::post_receive(std::uint64_t id, const std::vector<ibv_sge>& wanted) {
    std::vector<ibv_sge> sges = wanted;
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    return srq ? ibv_post_srq_recv(srq.get(), &wr, &bad) : ibv_post_recv(qp.get(), &wr, &bad);
}

ibv_wc Endpoint::wait(ibv_cq* cq, Clock::duration deadline) const {
    if (const auto completion = poll_for(cq, deadline)) return *completion;
    std::ostringstream text;
    text << "no " << (cq == send_cq.get() ? "send" : "receive") << " completion within "
         << std::chrono::duration_cast<std::chrono::seconds>(deadline).count() << " s; "
         << describe(qp.get());
    if (target) text << "; " << describe(target.get());
    throw VerbsFailure(text.str());
}

bool Endpoint::run(const Work& work) {
    const int error = post(work);
    EXPECT_EQ(error, 0) << "ibv_post_send: " << std::strerror(error);
    if (error != 0) return false;
    const ibv_wc completion = wait_send();
    EXPECT_TRUE(succeeded(completion));
    EXPECT_EQ(completion.wr_id, work.id);
    return completion.status == IBV_WC_SUCCESS;
}

Pair::Pair(Endpoint::Options first, Endpoint::Options second) : a(first), b(second, &a) {
    const Address of_a = a.address();
    const Address of_b = b.address();
    a.connect(of_b);
    b.connect(of_a);
}

}  // namespace softhca::test
