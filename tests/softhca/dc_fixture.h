// SPDX-License-Identifier: BSD-2-Clause
// What the tests of DC share: initiators (DCI) and targets (DCT), by mlx5dv_create_qp.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {

inline constexpr std::uint64_t kDcKey = 0x1122'3344'5566'7788;
inline constexpr int kDcAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Dct {
    std::uint32_t number = 0;
    std::uint64_t key = kDcKey;
};

// What both kinds of QP need.
struct Objects {
    explicit Objects(std::size_t bytes = 1 << 16)
        : context(open_device()),
          pd(check(ibv_alloc_pd(context.get()), "a PD")),
          cq(create_cq(context.get(), 1024)),
          srq(create_srq(pd.get(), 512)),
          memory(pd.get(), bytes) {}

    // `streams`: of a DCI. One that has none takes one failure.
    Owned<ibv_qp> make(mlx5dv_dc_type type, std::uint64_t key = 0,
                       mlx5dv_dci_streams streams = {}) const {
        ibv_qp_init_attr_ex attributes{};
        attributes.qp_type = IBV_QPT_DRIVER;
        attributes.send_cq = attributes.recv_cq = cq.get();
        attributes.pd = pd.get();
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        mlx5dv_qp_init_attr driver{};
        driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        driver.dc_init_attr.dc_type = type;
        if (type == MLX5DV_DCTYPE_DCT) {
            attributes.srq = srq.get();
            driver.dc_init_attr.dct_access_key = key;
        } else {
            if (streams.log_num_concurent != 0) {
                driver.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
                driver.dc_init_attr.dci_streams = streams;
            }
            attributes.cap.max_send_wr = 128;
            attributes.cap.max_send_sge = 2;
            attributes.cap.max_inline_data = 64;
            attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attributes.send_ops_flags =
                IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        }
        return Owned<ibv_qp>(
            check(mlx5dv_create_qp(context.get(), &attributes, &driver), "a QP of DC"));
    }
    ibv_ah_attr path() const {
        ibv_ah_attr path{};
        path.port_num = 1;
        path.dlid = port_attributes(context.get()).lid;
        if (is_ethernet(context.get())) {
            path.is_global = 1;
            path.grh.sgid_index = 3;
            path.grh.hop_limit = 1;
            require(ibv_query_gid(context.get(), 1, 3, &path.grh.dgid), "a GID");
        }
        return path;
    }

    Owned<ibv_context> context;
    Owned<ibv_pd> pd;
    Owned<ibv_cq> cq;
    Owned<ibv_srq> srq;
    Memory memory;
};

class Target : public Objects {
public:
    explicit Target(std::uint64_t key = kDcKey, int access = kDcAccess)
        : qp(make(MLX5DV_DCTYPE_DCT, key)), key_(key) {
        ibv_qp_attr init{};
        init.qp_state = IBV_QPS_INIT;
        init.port_num = 1;
        init.qp_access_flags = static_cast<unsigned>(access);
        require(ibv_modify_qp(qp.get(), &init,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                "DCT to INIT");
        ibv_qp_attr ready{};
        ready.qp_state = IBV_QPS_RTR;
        ready.path_mtu = IBV_MTU_1024;
        ready.min_rnr_timer = 1;
        ready.ah_attr = path();
        require(ibv_modify_qp(qp.get(), &ready,
                              IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU),
                "DCT to RTR");
    }
    Dct name() const { return {qp->qp_num, key_}; }
    void post_receive(std::uint64_t id, std::size_t offset, std::size_t length) {
        ibv_sge sge = memory.sge(offset, length);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        require(ibv_post_srq_recv(srq.get(), &wr, &bad), "a receive");
    }
    ibv_wc wait() const {
        const auto found = poll_for(cq.get(), kDeadline);
        if (!found) throw VerbsFailure("nothing arrived");
        return *found;
    }
    Owned<ibv_qp> qp;

private:
    std::uint64_t key_;
};

class Initiator : public Objects {
public:
    explicit Initiator(mlx5dv_dci_streams streams = {})
        : qp(make(MLX5DV_DCTYPE_DCI, 0, streams)), ah(nullptr) {
        ibv_ah_attr to = path();
        ah.reset(check(ibv_create_ah(pd.get(), &to), "an address handle"));
        to_ready();
    }
    void to_ready() {
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = 1;
        require(
            ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
            "DCI to INIT");
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.ah_attr = path();
        require(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV),
                "DCI to RTR");
        attributes.qp_state = IBV_QPS_RTS;
        attributes.timeout = 10;
        attributes.retry_cnt = 2;
        attributes.rnr_retry = 7;
        attributes.max_rd_atomic = 4;
        require(ibv_modify_qp(qp.get(), &attributes,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                "DCI to RTS");
    }
    // Posts what `build` begins (ibv_wr_send and the like), to that target.
    template <class Build>
    void post(const Dct& to, std::size_t offset, std::size_t length, const Build& build) {
        ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp.get());
        ibv_wr_start(extended);
        extended->wr_flags = IBV_SEND_SIGNALED;
        build(extended);
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(extended), ah.get(), to.number, to.key);
        ibv_wr_set_sge(extended, memory.mr()->lkey, memory.address(offset),
                       static_cast<std::uint32_t>(length));
        require(ibv_wr_complete(extended), "posting");
    }
    // A SEND of that stream, from a part of the memory.
    void send_on(std::uint16_t stream, const Dct& to, std::size_t offset, std::size_t length) {
        ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp.get());
        ibv_wr_start(extended);
        extended->wr_id = stream;
        extended->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(extended);
        mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(extended), ah.get(), to.number,
                                     to.key, stream);
        ibv_wr_set_sge(extended, memory.mr()->lkey, memory.address(offset),
                       static_cast<std::uint32_t>(length));
        require(ibv_wr_complete(extended), "posting");
    }
    void send(const Dct& to, std::size_t offset, std::size_t length) {
        post(to, offset, length, [](ibv_qp_ex* extended) { ibv_wr_send(extended); });
    }
    ibv_wc wait() const {
        const auto found = poll_for(cq.get(), kDeadline);
        if (!found) throw VerbsFailure("nothing completed");
        return *found;
    }
    Owned<ibv_qp> qp;
    Owned<ibv_ah> ah;
};

}  // namespace softhca::test
