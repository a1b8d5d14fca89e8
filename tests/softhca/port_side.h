// SPDX-License-Identifier: BSD-2-Clause
// QPs at any port of any device of a fabric that has several.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "verbs_fixture.h"

namespace softhca::test {

// The device of that number, or nullptr if the fabric has fewer.
inline Owned<ibv_context> open_device_number(unsigned number) {
    int count = 0;
    ibv_device** const list = check(ibv_get_device_list(&count), "ibv_get_device_list");
    const std::string name = "mlx5_" + std::to_string(number);
    Owned<ibv_context> context;
    for (int i = 0; i < count; ++i)
        if (name == ibv_get_device_name(list[i]))
            context.reset(check(ibv_open_device(list[i]), "ibv_open_device"));
    ibv_free_device_list(list);
    return context;
}

struct PortSideOptions {
    ibv_qp_type type = IBV_QPT_RC;
    std::uint8_t timeout = 12;  // 4.096 us << 12 = 17 ms
    std::uint8_t retry_count = 3;
};

// One QP at one port, with memory and a CQ of its own.
class PortSide {
public:
    static constexpr std::uint32_t kQkey = 0x1111'1111;
    static constexpr std::size_t kGrh = 40;

    PortSide(unsigned device, std::uint8_t port, PortSideOptions options = {})
        : options_(options), port_(port), context(open_device_number(device)) {
        if (!context) fail("there is no device " + std::to_string(device));
        require(ibv_query_port(context.get(), port, &attributes), "ibv_query_port");
        ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
        gid_index = ethernet ? 3 : 0;
        require(ibv_query_gid(context.get(), port, gid_index, &gid), "ibv_query_gid");
        pd.reset(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
        cq = create_cq(context.get(), 256);
        memory = std::make_unique<Memory>(pd.get(), 4096);
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = cq.get();
        wanted.qp_type = options.type;
        wanted.cap = {64, 64, 1, 1, 0};
        wanted.sq_sig_all = 1;
        qp.reset(check(ibv_create_qp(pd.get(), &wanted), "ibv_create_qp"));
    }

    ibv_ah_attr path_to(const PortSide& peer) const {
        ibv_ah_attr path{};
        path.port_num = port_;
        path.dlid = peer.attributes.lid;
        path.is_global = ethernet;
        path.grh.dgid = peer.gid;
        path.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        path.grh.hop_limit = 1;
        return path;
    }

    int to_init(std::uint8_t port) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = port;
        attr.qkey = kQkey;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        return ibv_modify_qp(qp.get(), &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                 (is_datagram() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    }
    int to_ready_to_receive(std::uint32_t number, const ibv_ah_attr& path) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTR;
        if (is_datagram()) return ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE);
        attr.ah_attr = path;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = number;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 1;
        int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if (options_.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        return ibv_modify_qp(qp.get(), &attr, mask);
    }
    int to_ready_to_send() const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = options_.timeout;
        attr.retry_cnt = options_.retry_count;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if (options_.type == IBV_QPT_RC)
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        return ibv_modify_qp(qp.get(), &attr, mask);
    }
    void connect(const PortSide& peer, const ibv_ah_attr& path) const {
        require(to_init(port_), "INIT");
        require(to_ready_to_receive(peer.qp->qp_num, path), "RTR");
        require(to_ready_to_send(), "RTS");
    }
    void connect(const PortSide& peer) const { connect(peer, path_to(peer)); }

    void post_receive(std::uint64_t id = 1) const {
        ibv_sge sge = memory->sge(0, 2048);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        require(ibv_post_recv(qp.get(), &wr, &bad), "ibv_post_recv");
    }
    void post_send(std::uint64_t id = 2, std::uint32_t bytes = 64, ibv_ah* ah = nullptr,
                   std::uint32_t number = 0) const {
        ibv_sge sge = memory->sge(2048, bytes);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = number;
        wr.wr.ud.remote_qkey = kQkey;
        require(ibv_post_send(qp.get(), &wr, &bad), "ibv_post_send");
    }
    // The next completion; none within the time: wr_id is ~0.
    ibv_wc poll(Clock::duration within = kDeadline) const {
        const auto end = Clock::now() + within;
        ibv_wc wc{};
        while (ibv_poll_cq(cq.get(), 1, &wc) == 0) {
            if (Clock::now() >= end) {
                wc.wr_id = ~0ull;
                return wc;
            }
            std::this_thread::yield();
        }
        return wc;
    }
    bool is_datagram() const { return options_.type == IBV_QPT_UD; }
    std::uint8_t port() const { return port_; }

private:
    PortSideOptions options_;
    std::uint8_t port_;

public:
    Owned<ibv_context> context;
    ibv_port_attr attributes{};
    bool ethernet = false;
    int gid_index = 0;
    ibv_gid gid{};
    Owned<ibv_pd> pd;
    Owned<ibv_cq> cq;
    std::unique_ptr<Memory> memory;
    Owned<ibv_qp> qp;
};

// A message arrives, and its sender learns so.
inline testing::AssertionResult reaches(const PortSide& from, const PortSide& to) {
    to.post_receive();
    from.memory->fill(2048, 64, 7);
    from.post_send();
    const ibv_wc sent = from.poll(), received = to.poll();
    if (sent.status != IBV_WC_SUCCESS || received.status != IBV_WC_SUCCESS)
        return testing::AssertionFailure() << ibv_wc_status_str(sent.status)
                                           << ", receiver: " << ibv_wc_status_str(received.status);
    return to.memory->holds(0, 64, 7);
}

// Skips a test where there are not two devices with two ports: variants softhca.two*.
class SeveralPorts : public testing::Test {
protected:
    void SetUp() override {
        const Owned<ibv_context> second = open_device_number(1);
        if (!second || device_attributes(second.get()).phys_port_cnt < 2)
            GTEST_SKIP() << "softhca run --devices 2 --ports 2";
    }
};

}  // namespace softhca::test
