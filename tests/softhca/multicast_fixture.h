// SPDX-License-Identifier: BSD-2-Clause
// What the tests of multicast share: groups, and endpoints that are members.
#pragma once

#include <arpa/inet.h>

#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {

inline constexpr std::uint32_t kGroupQp = 0xffffff;

struct Group {
    ibv_gid gid = {};
    std::uint16_t lid = 0;
};

// A group that differs from all others of that number: of IPv4 on an Ethernet port, as the GID that
// endpoints use there is one of RoCE v2 over IPv4.
inline Group group_of(ibv_context* context, std::uint8_t number) {
    static constexpr std::uint8_t kInfiniBand[] = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff};
    static constexpr std::uint8_t kIpv4[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2};
    Group group;
    if (is_ethernet(context)) {
        std::memcpy(group.gid.raw, kIpv4, sizeof kIpv4);
    } else {
        std::memcpy(group.gid.raw, kInfiniBand, sizeof kInfiniBand);
        group.lid = static_cast<std::uint16_t>(0xc000 + number);
    }
    group.gid.raw[15] = number;
    return group;
}

inline int attach(const Endpoint& e, const Group& group) {
    return ibv_attach_mcast(e.qp.get(), &group.gid, group.lid);
}
inline int detach(const Endpoint& e, const Group& group) {
    return ibv_detach_mcast(e.qp.get(), &group.gid, group.lid);
}

// An endpoint of datagrams that sends to the group, and that may be a member of it.
class Member : public Endpoint {
public:
    explicit Member(std::uint8_t group_number, Options options = {}, Endpoint* neighbour = nullptr)
        : Endpoint(datagrams(options), neighbour), group(group_of(context.get(), group_number)) {
        connect(address());
        send_to(group);
    }
    Member(Member&&) = delete;
    ~Member() {
        if (joined) {
            EXPECT_EQ(leave(), 0);
        }
    }

    void send_to(const Group& to) {
        ibv_ah_attr path = {};
        path.dlid = to.lid;
        path.port_num = 1;
        path.is_global = 1;
        path.grh.dgid = to.gid;
        path.grh.sgid_index = is_ethernet(context.get()) ? options.gid_index : 0;
        path.grh.hop_limit = 5;
        ah.reset(check(ibv_create_ah(pd.get(), &path), "ibv_create_ah"));
        peer.target_qpn = kGroupQp;
    }
    int join() {
        const int error = attach(*this, group);
        joined = joined || error == 0;
        return error;
    }
    int leave() {
        joined = false;
        return detach(*this, group);
    }
    // A receive for a message of at most 216 bytes, into memory of its own.
    void provide(std::uint64_t id) { ASSERT_EQ(post_receive(id, {place(id)}), 0); }
    ibv_sge place(std::uint64_t id) const { return memory->sge(1024 + id % 128 * 256, 256); }
    const std::uint8_t* received(std::uint64_t id) const {
        return memory->data() + 1024 + id % 128 * 256;
    }
    // The next receive is number `id` and has the `length` bytes that `sender` has sent.
    void expect_message(std::uint64_t id, const Endpoint& sender, std::size_t length) {
        const ibv_wc wc = wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.byte_len, 40 + length);
        EXPECT_EQ(wc.src_qp, sender.qp->qp_num);
        EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
        EXPECT_EQ(std::memcmp(received(id) + 40, sender.memory->data(), length), 0);
        // IPv4 has its header in the last 20 of the 40 bytes.
        const bool ipv4 = group.gid.raw[0] == 0;
        EXPECT_EQ(std::memcmp(received(id) + (ipv4 ? 36 : 24), group.gid.raw + (ipv4 ? 12 : 0),
                              ipv4 ? 4 : 16),
                  0)
            << "the header names the group";
    }
    testing::AssertionResult has_nothing() {
        const auto wc = poll_for(receive_cq.get(), std::chrono::milliseconds(30));
        if (!wc) return testing::AssertionSuccess();
        return testing::AssertionFailure() << describe(*wc);
    }

    Group group;
    bool joined = false;

private:
    static Options datagrams(Options options) {
        options.transport = Transport::kUd;
        return options;
    }
};

}  // namespace softhca::test
