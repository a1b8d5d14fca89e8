// SPDX-License-Identifier: BSD-2-Clause
// What the tests of indirect memory keys share: making and changing such a key
// (mlx5dv_create_mkey(3), mlx5dv_wr_post(3)), and reaching memory by it.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstring>
#include <memory>
#include <vector>

#include "verbs_fixture.h"

namespace softhca::test {

inline constexpr std::uint32_t kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr std::uint32_t kEverything = kRemote | IBV_ACCESS_LOCAL_WRITE;

struct DestroyMkey {
    void operator()(mlx5dv_mkey* mkey) const { EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0); }
};
using OwnedMkey = std::unique_ptr<mlx5dv_mkey, DestroyMkey>;

inline OwnedMkey make_mkey(ibv_pd* pd, std::uint16_t parts, std::uint32_t more_flags = 0) {
    mlx5dv_mkey_init_attr attributes{};
    attributes.pd = pd;
    attributes.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | more_flags;
    attributes.max_entries = parts;
    return OwnedMkey(mlx5dv_create_mkey(&attributes));
}

// A QP that is connected to itself, to change keys of its domain.
class Configurer {
public:
    explicit Configurer(const Endpoint& of) : cq_(create_cq(of.context.get(), 16)) {
        ibv_qp_init_attr_ex attributes{};
        attributes.qp_type = IBV_QPT_RC;
        attributes.send_cq = attributes.recv_cq = cq_.get();
        attributes.pd = of.pd.get();
        attributes.cap = {.max_send_wr = 16,
                          .max_recv_wr = 1,
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline_data = 512};
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV;
        mlx5dv_qp_init_attr driver{};
        driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        driver.send_ops_flags = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
                                MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MEMCPY;
        qp_.reset(check(mlx5dv_create_qp(of.context.get(), &attributes, &driver),
                        "a QP that changes keys"));
        connect(of.context.get());
        extended_ = ibv_qp_to_qp_ex(qp_.get());
        posting_ = mlx5dv_qp_ex_from_ibv_qp_ex(extended_);
    }

    ibv_wc list(mlx5dv_mkey* mkey, std::uint32_t access, std::vector<ibv_sge> parts) const {
        begin();
        mlx5dv_wr_mr_list(posting_, mkey, access, static_cast<std::uint16_t>(parts.size()),
                          parts.data());
        return complete();
    }
    ibv_wc interleaved(mlx5dv_mkey* mkey, std::uint32_t access, std::uint32_t repeats,
                       std::vector<mlx5dv_mr_interleaved> parts) const {
        begin();
        mlx5dv_wr_mr_interleaved(posting_, mkey, access, repeats,
                                 static_cast<std::uint16_t>(parts.size()), parts.data());
        return complete();
    }
    ibv_wc rights(mlx5dv_mkey* mkey, std::uint32_t access) const {
        mlx5dv_mkey_conf_attr attributes{};
        begin();
        mlx5dv_wr_mkey_configure(posting_, mkey, 1, &attributes);
        mlx5dv_wr_set_mkey_access_flags(posting_, access);
        return complete();
    }
    ibv_wc invalidate(std::uint32_t key) const {
        begin();
        ibv_wr_local_inv(extended_, key);
        return complete();
    }
    ibv_wc copy(const ibv_sge& to, const ibv_sge& from) const {
        begin();
        mlx5dv_wr_memcpy(posting_, to.lkey, to.addr, from.lkey, from.addr, from.length);
        return complete();
    }
    int error_of_list(mlx5dv_mkey* mkey, std::vector<ibv_sge> parts) const {
        begin();
        mlx5dv_wr_mr_list(posting_, mkey, kEverything, static_cast<std::uint16_t>(parts.size()),
                          parts.data());
        return ibv_wr_complete(extended_);
    }

private:
    void connect(ibv_context* context) const {
        ibv_qp_attr attributes{};
        attributes.port_num = attributes.ah_attr.port_num = 1;
        attributes.path_mtu = IBV_MTU_1024;
        attributes.dest_qp_num = qp_->qp_num;
        attributes.ah_attr.dlid = port_attributes(context).lid;
        if (is_ethernet(context)) {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.sgid_index = 3;
            require(ibv_query_gid(context, 1, 3, &attributes.ah_attr.grh.dgid), "a GID");
        }
        const auto step = [&](ibv_qp_state state, int mask) {
            attributes.qp_state = state;
            require(ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE | mask), "the next state");
        };
        step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        step(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        step(IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC);
    }
    void begin() const {
        ibv_wr_start(extended_);
        extended_->wr_id = 31;
        extended_->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    }
    ibv_wc complete() const {
        require(ibv_wr_complete(extended_), "posting a change of a key");
        const auto found = poll_for(cq_.get(), kDeadline);
        if (!found) throw VerbsFailure("a change of a key did not complete");
        return *found;
    }

    Owned<ibv_cq> cq_;
    Owned<ibv_qp> qp_;
    ibv_qp_ex* extended_ = nullptr;
    mlx5dv_qp_ex* posting_ = nullptr;
};

// b has the memory and the keys; a reaches for them.
class Mkeys : public testing::Test {
protected:
    Mkeys() : memory_(pair_.b.pd.get(), 1 << 18, IBV_ACCESS_LOCAL_WRITE), by_(pair_.b) {
        std::memset(memory_.data(), 0xee, memory_.size());
    }

    ibv_sge part(std::size_t from, std::uint32_t bytes) const { return memory_.sge(from, bytes); }
    mlx5dv_mr_interleaved every(std::size_t from, std::uint32_t bytes, std::uint32_t skip) const {
        return {memory_.address(from), bytes, skip, memory_.mr()->lkey};
    }
    ibv_wc reach(ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address,
                 std::size_t bytes) {
        ibv_sge sge = pair_.a.memory->sge(0, bytes);
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            wr.wr.atomic = {.remote_addr = address, .compare_add = 1, .swap = 0, .rkey = key};
        else
            wr.wr.rdma = {.remote_addr = address, .rkey = key};
        EXPECT_EQ(ibv_post_send(pair_.a.qp.get(), &wr, &bad), 0);
        return pair_.a.wait_send();
    }
    ibv_wc write(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
        pair_.a.memory->fill(0, bytes, 99);
        return reach(IBV_WR_RDMA_WRITE, key, address, bytes);
    }
    void expect_no_access(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
        EXPECT_TRUE(
            has_status(write(key, address, bytes), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
        EXPECT_TRUE(memory_.untouched(0, memory_.size(), 0xee));
    }

    Pair pair_;
    Memory memory_;
    Configurer by_;
};

}  // namespace softhca::test
