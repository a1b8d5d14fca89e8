// SPDX-License-Identifier: BSD-2-Clause
// Datagrams to multicast groups (IBTA 10.5; ibv_attach_mcast(3)): each member gets each message
// once, by the rules of datagrams; which attaches are refused, and with which errno.

#include "multicast_fixture.h"

#include <cerrno>
#include <thread>

#include "chosen_trait.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kNoLidsOfGroups[] = {0x0001, 0xbfff, 0xffff};

TEST(Multicast, ReachesEachMemberAndItsSender) {
    Member a(1), b(1), c(1);
    for (Member* member : {&a, &b, &c}) {
        ASSERT_EQ(member->join(), 0);
        member->provide(7);
    }
    a.memory->fill(0, 100, 1);
    ASSERT_TRUE(a.run(send_of(a, 100)));
    for (Member* member : {&a, &b, &c}) {
        ASSERT_NO_FATAL_FAILURE(member->expect_message(7, a, 100));
        EXPECT_TRUE(member->has_nothing());
    }
    EXPECT_FALSE(poll_for(a.send_cq.get(), milliseconds(10))) << "one completion of the sender";
}

// A sender need not be a member, and immediate data go to all.
TEST(Multicast, TakesImmediateDataFromASenderThatIsNoMember) {
    Member a(1), b(1), c(1);
    ASSERT_EQ(b.join(), 0);
    ASSERT_EQ(c.join(), 0);
    b.provide(1);
    c.provide(2);
    Work work = send_of(a, 8);
    work.opcode = IBV_WR_SEND_WITH_IMM;
    work.immediate = 0x12345678;
    ASSERT_TRUE(a.run(work));
    for (Member* member : {&b, &c}) {
        const ibv_wc wc = member->wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(ntohl(wc.imm_data), 0x12345678u);
    }
}

TEST(Multicast, PassesOverOthers) {
    Member a(1), other_group(2), left(1), wrong_key(1), not_ready(1);
    Member reset(1);
    for (Member* member : {&other_group, &left, &wrong_key, &not_ready, &reset}) {
        ASSERT_EQ(member->join(), 0);
        member->provide(1);
    }
    ASSERT_EQ(left.leave(), 0);
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.qkey = 0x22222222;
    ASSERT_EQ(ibv_modify_qp(wrong_key.qp.get(), &attributes, IBV_QP_STATE | IBV_QP_QKEY), 0);
    for (Member* member : {&not_ready, &reset}) {
        attributes.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(member->qp.get(), &attributes, IBV_QP_STATE), 0);
    }
    not_ready.to_init();
    ASSERT_TRUE(a.run(send_of(a, 10)));
    for (Member* member : {&other_group, &left, &wrong_key, &not_ready, &reset})
        EXPECT_TRUE(member->has_nothing());
    // Only the Q_Key and the states kept them from it.
    a.peer.qkey = 0x22222222;
    ASSERT_TRUE(a.run(send_of(a, 10)));
    EXPECT_TRUE(succeeded(wrong_key.wait_receive()));
    a.peer.qkey = 0x11111111;
    not_ready.to_ready_to_receive(not_ready.peer);
    not_ready.provide(1);
    ASSERT_TRUE(a.run(send_of(a, 10)));
    EXPECT_TRUE(succeeded(not_ready.wait_receive()));
}

TEST(Multicast, ToAGroupWithoutMembersIsLost) {
    Member a(1);
    for (int i = 0; i < 100; ++i)
        ASSERT_TRUE(a.run(send_of(a, 10)));
    a.send_to({a.address().gid, a.group.lid});  // no GID of a group
    ASSERT_TRUE(a.run(send_of(a, 10)));
    EXPECT_EQ(state_of(a.qp.get()), IBV_QPS_RTS);
}

TEST(Multicast, NeedsALidOfGroupsAndAGlobalRouteOnInfiniBand) {
    Member a(1), b(1);
    if (is_ethernet(a.context.get())) GTEST_SKIP() << "an Ethernet port has no LIDs";
    ASSERT_EQ(b.join(), 0);
    b.provide(1);
    for (const std::uint16_t lid : kNoLidsOfGroups) {
        a.send_to({a.group.gid, lid});
        ASSERT_TRUE(a.run(send_of(a, 10)));
    }
    ibv_ah_attr path = {};
    path.dlid = a.group.lid;
    path.port_num = 1;
    a.ah.reset(check(ibv_create_ah(a.pd.get(), &path), "ibv_create_ah"));
    ASSERT_TRUE(a.run(send_of(a, 10)));
    EXPECT_TRUE(b.has_nothing());
    a.send_to(a.group);
    ASSERT_TRUE(a.run(send_of(a, 10)));
    ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 10));
}

// RoCE v1 and v2 over IPv6 have groups of IPv6; v2 over IPv4 those of IPv4 (annexes A16, A17).
TEST(Multicast, OnEthernetGoesByTheKindOfAddress) {
    Member a(1);
    if (!is_ethernet(a.context.get())) GTEST_SKIP() << "the port is InfiniBand";
    Group ipv6 = a.group;
    ipv6.gid.raw[0] = 0xff;  // ff0e::ffff:239.1.2.1
    ipv6.gid.raw[1] = 0x0e;
    const bool has_v1 = !chosen(DeviceTrait::kNoRoceV1);
    for (std::uint8_t index = 0; index < 4; ++index) {
        if (index % 2 == 0 && !has_v1) continue;
        SCOPED_TRACE(testing::Message() << "entry " << int{index});
        Member b(1);
        b.group = ipv6;
        ASSERT_EQ(b.join(), 0);
        b.provide(1);
        a.options.gid_index = index;
        a.send_to(ipv6);
        ASSERT_TRUE(a.run(send_of(a, 10)));
        if (index == 3)
            EXPECT_TRUE(b.has_nothing()) << "an IPv4 packet cannot go there";
        else
            ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 10));
    }
}

TEST(Multicast, AttachesAreRefusedAsTheKernelRefusesThem) {
    Member a(1);
    const bool ethernet = is_ethernet(a.context.get());
    Endpoint reliable;
    EXPECT_EQ(attach(reliable, a.group), EINVAL);
    EXPECT_EQ(attach(a, {a.address().gid, a.group.lid}), EINVAL) << "a port's GID";
    for (const std::uint16_t lid : kNoLidsOfGroups) {
        EXPECT_EQ(attach(a, {a.group.gid, lid}), ethernet ? 0 : EINVAL) << lid;
        EXPECT_EQ(detach(a, {a.group.gid, lid}), ethernet ? 0 : EINVAL) << lid;
    }
    EXPECT_EQ(detach(a, a.group), EINVAL) << "it is not attached";
    EXPECT_EQ(attach(a, a.group), 0);
    EXPECT_EQ(attach(a, a.group), 0) << "once more";
    EXPECT_EQ(detach(a, {a.group.gid, 0xc123}), EINVAL) << "by another LID";
    EXPECT_EQ(detach(a, group_of(a.context.get(), 2)), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(a.qp.get()), EBUSY) << "it is attached";
    EXPECT_EQ(detach(a, a.group), 0);
    EXPECT_EQ(detach(a, a.group), EINVAL) << "it was attached once";
}

TEST(Multicast, ToAMemberByTwoLidsIsOneMessage) {
    Member a(1), b(1);
    const Group second = {a.group.gid, static_cast<std::uint16_t>(0xc777)};
    ASSERT_EQ(b.join(), 0);
    ASSERT_EQ(attach(b, second), 0);
    b.provide(1);
    b.provide(2);
    b.provide(3);
    ASSERT_TRUE(a.run(send_of(a, 10)));
    ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 10));
    EXPECT_TRUE(b.has_nothing());
    ASSERT_EQ(b.leave(), 0);
    ASSERT_TRUE(a.run(send_of(a, 10)));
    ASSERT_NO_FATAL_FAILURE(b.expect_message(2, a, 10));
    ASSERT_EQ(detach(b, second), 0);
    ASSERT_TRUE(a.run(send_of(a, 10)));
    EXPECT_TRUE(b.has_nothing());
}

TEST(Multicast, WithBlockedLoopbackDoesNotReachItsSender) {
    Endpoint::Options options;
    options.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    Member a(1, options), b(1, options);
    for (Member* member : {&a, &b}) {
        ASSERT_EQ(member->join(), 0);
        member->provide(1);
    }
    ASSERT_TRUE(a.run(send_of(a, 10)));
    ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 10));
    EXPECT_TRUE(a.has_nothing());
}

// A member without a receive loses the message, and then no longer holds up the sender: a hundred
// waits would take five seconds. The others get everything.
TEST(Multicast, MemberWithoutAReceiveLosesIt) {
    Member a(1), b(1), idle(1), last(1);
    for (Member* member : {&a, &b, &idle, &last})
        ASSERT_EQ(member->join(), 0);
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < 100; ++i) {
        b.provide(i);
        last.provide(i);
        a.memory->fill(0, 30, static_cast<std::uint32_t>(i));
        ASSERT_TRUE(a.run(send_of(a, 30)));
        ASSERT_NO_FATAL_FAILURE(b.expect_message(i, a, 30));
        ASSERT_NO_FATAL_FAILURE(last.expect_message(i, a, 30));
    }
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
    idle.provide(5);
    EXPECT_TRUE(idle.has_nothing()) << "a late delivery";
    b.provide(5);
    last.provide(5);
    ASSERT_TRUE(a.run(send_of(a, 30)));
    ASSERT_NO_FATAL_FAILURE(idle.expect_message(5, a, 30));
}

// As Datagram.ForWhichAReceiveComesInTimeArrives, and the member that has receives does not get the
// message again when the sender comes back for the other.
TEST(Multicast, ForWhichAReceiveComesInTimeArrivesOnce) {
    Member a(1), slow(1), quick(1);
    ASSERT_EQ(slow.join(), 0);
    ASSERT_EQ(quick.join(), 0);
    for (std::uint64_t id = 0; id < 20; ++id)
        quick.provide(id);
    for (std::uint64_t id = 0; id < 4; ++id)
        slow.provide(id);
    for (int i = 0; i < 8; ++i)
        ASSERT_EQ(a.post(send_of(a, 16)), 0);
    for (std::uint64_t id = 0; id < 8; ++id) {
        ASSERT_NO_FATAL_FAILURE(slow.expect_message(id, a, 16));
        slow.provide(id + 4);
    }
    for (std::uint64_t id = 0; id < 8; ++id) {
        EXPECT_TRUE(succeeded(a.wait_send()));
        ASSERT_NO_FATAL_FAILURE(quick.expect_message(id, a, 16));
    }
    EXPECT_TRUE(quick.has_nothing());
}

// The receive completes in error, as that of any datagram; the others get the message.
TEST(Multicast, TooLongForOneReceiveReachesTheOthers) {
    Member a(1), small(1), b(1);
    ASSERT_EQ(small.join(), 0);
    ASSERT_EQ(b.join(), 0);
    ASSERT_EQ(small.post_receive(1, {small.memory->sge(0, 60)}), 0);
    b.provide(1);
    ASSERT_TRUE(a.run(send_of(a, 100)));
    EXPECT_EQ(small.wait_receive().status, IBV_WC_LOC_LEN_ERR);
    ASSERT_NO_FATAL_FAILURE(b.expect_message(1, a, 100));
}

TEST(Multicast, OfUnregisteredMemoryFailsTheSenderAndReachesNobody) {
    Member a(1), b(1), c(1);
    for (Member* member : {&b, &c}) {
        ASSERT_EQ(member->join(), 0);
        member->provide(1);
    }
    Work work = send_of(a, 10);
    work.sges[0].lkey ^= 0xff00;
    ASSERT_EQ(a.post(work), 0);
    EXPECT_EQ(a.wait_send().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_TRUE(b.has_nothing());
    EXPECT_TRUE(c.has_nothing());
}

// Members with one CQ and one SRQ, and many senders at once: locks that another thread holds make a
// sender come back, but nobody gets a message twice, and each sender's come in order.
TEST(Multicast, FromManyThreadsReachesEachMemberOnceAndInOrder) {
    constexpr unsigned kSenders = 3, kMembers = 3, kMessages = 400;
    std::vector<std::unique_ptr<Member>> senders, members;
    Endpoint::Options options;
    options.receive_depth = options.send_depth = 2048;
    options.cq_depth = 4096;
    for (unsigned i = 0; i < kMembers; ++i) {
        options.srq = i == 0;
        members.push_back(std::make_unique<Member>(1, options));
        ASSERT_EQ(members[i]->join(), 0);
        for (std::uint64_t id = 0; id < std::uint64_t{kSenders} * kMessages; ++id)
            members[i]->provide(id);
    }
    options.srq = false;
    for (unsigned i = 0; i < kSenders; ++i)
        senders.push_back(std::make_unique<Member>(1, options));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kSenders; ++i)
        threads.emplace_back([&sender = *senders[i]] {
            for (std::uint32_t n = 0; n < kMessages; ++n) {
                Work work = send_of(sender, 10);
                work.opcode = IBV_WR_SEND_WITH_IMM;
                work.immediate = n;
                ASSERT_TRUE(sender.run(work));
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    for (auto& member : members) {
        std::vector<std::uint32_t> next(kSenders, 0);
        for (unsigned i = 0; i < kSenders * kMessages; ++i) {
            const ibv_wc wc = member->wait_receive();
            ASSERT_TRUE(succeeded(wc));
            for (unsigned sender = 0; sender < kSenders; ++sender)
                if (wc.src_qp == senders[sender]->qp->qp_num) {
                    ASSERT_EQ(ntohl(wc.imm_data), next[sender]++);
                }
        }
        EXPECT_TRUE(member->has_nothing());
    }
}

}  // namespace
}  // namespace softhca::test
