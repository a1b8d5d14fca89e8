// SPDX-License-Identifier: BSD-2-Clause
// How many members and groups there may be, and members in other processes, which may die.

#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <random>

#include "multicast_fixture.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

std::vector<Owned<ibv_qp>> datagram_qps(const Endpoint& e, int count) {
    std::vector<Owned<ibv_qp>> list;
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = e.send_cq.get();
    attributes.qp_type = IBV_QPT_UD;
    attributes.cap = {1, 1, 1, 1, 0};
    for (int i = 0; i < count; ++i)
        list.emplace_back(check(ibv_create_qp(e.pd.get(), &attributes), "ibv_create_qp"));
    return list;
}

Group nth_group(const Endpoint& e, unsigned number) {
    Group group = group_of(e.context.get(), 9);
    group.gid.raw[13] = static_cast<std::uint8_t>(number >> 8);
    group.gid.raw[14] = static_cast<std::uint8_t>(number);
    return group;
}

TEST(MulticastLimits, MembersOfAGroup) {
    Endpoint e;
    const int most = device_attributes(e.context.get()).max_mcast_qp_attach;
    ASSERT_GT(most, 0);
    const auto list = datagram_qps(e, most + 1);
    const Group group = nth_group(e, 0);
    int attached = 0, error = 0;
    for (const auto& qp : list)
        if ((error = ibv_attach_mcast(qp.get(), &group.gid, group.lid)) == 0) ++attached;
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(attached, most);
    for (int i = 0; i < most; ++i)
        EXPECT_EQ(ibv_detach_mcast(list[static_cast<std::size_t>(i)].get(), &group.gid, group.lid),
                  0);
    EXPECT_EQ(ibv_attach_mcast(list.back().get(), &group.gid, group.lid), 0);
    EXPECT_EQ(ibv_detach_mcast(list.back().get(), &group.gid, group.lid), 0);
}

TEST(MulticastLimits, Groups) {
    Member a(1);
    const ibv_device_attr attributes = device_attributes(a.context.get());
    const auto most = static_cast<unsigned>(attributes.max_mcast_grp);
    EXPECT_EQ(attributes.max_total_mcast_qp_attach,
              attributes.max_mcast_grp * attributes.max_mcast_qp_attach);
    for (int round = 0; round < 2; ++round) {
        unsigned count = 0;
        int error = 0;
        while (count <= most && (error = attach(a, nth_group(a, count))) == 0)
            ++count;
        EXPECT_EQ(error, ENOMEM);
        EXPECT_LE(count, most);
        EXPECT_GE(count + 8, most) << "fewer than the device says";
        // The last one is found, too.
        a.provide(3);
        a.group = nth_group(a, count - 1);
        a.send_to(a.group);
        ASSERT_TRUE(a.run(send_of(a, 10)));
        ASSERT_NO_FATAL_FAILURE(a.expect_message(3, a, 10));
        for (unsigned i = 0; i < count; ++i)
            ASSERT_EQ(detach(a, nth_group(a, i)), 0);
    }
}

// How many QPs of this process can join. Members of a process that ends leave at some moment of the
// loop, so a QP may join after others could not.
int free_places(const Endpoint& e, const Group& group) {
    const auto list = datagram_qps(e, device_attributes(e.context.get()).max_mcast_qp_attach);
    std::vector<ibv_qp*> joined;
    for (const auto& qp : list)
        if (ibv_attach_mcast(qp.get(), &group.gid, group.lid) == 0) joined.push_back(qp.get());
    for (ibv_qp* const qp : joined)
        EXPECT_EQ(ibv_detach_mcast(qp, &group.gid, group.lid), 0);
    return static_cast<int>(joined.size());
}

// A process that ends leaves its groups, whether it exits or is killed.
TEST(MulticastProcesses, LeaveAtTheirEnd) {
    for (const bool killed : {false, true}) {
        Child child([&](Channel& channel) {
            static std::optional<Endpoint> e;
            static std::vector<Owned<ibv_qp>> list;
            e.emplace();
            list = datagram_qps(*e, 100);
            for (const auto& qp : list) {
                const Group group = nth_group(*e, 1);
                ASSERT_EQ(ibv_attach_mcast(qp.get(), &group.gid, group.lid), 0);
            }
            channel.meet();
            channel.meet();
            _exit(0);
        });
        child.channel().meet();
        Endpoint e;
        const Group group = nth_group(e, 1);
        const int most = device_attributes(e.context.get()).max_mcast_qp_attach;
        EXPECT_EQ(free_places(e, group), most - 100);
        if (killed)
            child.kill(SIGKILL);
        else
            child.channel().meet();
        child.wait();
        const auto end = Clock::now() + kDeadline;
        while (free_places(e, group) != most && Clock::now() < end)
            std::this_thread::sleep_for(milliseconds(50));
        EXPECT_EQ(free_places(e, group), most) << killed;
    }
}

// Closing the device ends a membership as the kernel's close of the file does.
TEST(MulticastProcesses, LeaveWhenTheyCloseTheDevice) {
    Child child([](Channel& channel) {
        static Endpoint outlives;  // keeps the process on the fabric
        ibv_context* const context = open_device().release();
        ibv_pd* const pd = check(ibv_alloc_pd(context), "ibv_alloc_pd");
        ibv_cq* const cq = check(ibv_create_cq(context, 10, nullptr, nullptr, 0), "ibv_create_cq");
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.qp_type = IBV_QPT_UD;
        attributes.cap = {1, 1, 1, 1, 0};
        const Group group = nth_group(outlives, 2);
        ibv_qp* const qp = check(ibv_create_qp(pd, &attributes), "ibv_create_qp");
        ASSERT_EQ(ibv_attach_mcast(qp, &group.gid, group.lid), 0);
        ASSERT_EQ(free_places(outlives, group), 239);
        ibv_close_device(context);
        EXPECT_EQ(free_places(outlives, group), 240);
        channel.meet();
        std::fflush(nullptr);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    });
    child.channel().meet();
    child.expect_success();
}

// Messages from two processes to members in four. Each member gets all, each sender's in order.
TEST(MulticastProcesses, ReachEachOther) {
    constexpr std::uint32_t kMessages = 500, kMembers = 4, kSenders = 2;
    const auto is_sender = [](std::uint32_t n) { return n < kSenders; };
    const auto member = [&](std::uint32_t number) {
        return [&, number](Channel& channel) {
            Endpoint::Options options;
            options.receive_depth = 2048;
            options.cq_depth = 4096;
            Member e(3, options);
            ASSERT_EQ(e.join(), 0);
            for (std::uint64_t id = 0; id < std::uint64_t{kMessages} * kSenders; ++id)
                e.provide(id);
            channel.meet();  // all have joined
            channel.meet();
            for (std::uint32_t n = 0; is_sender(number) && n < kMessages; ++n) {
                Work work = send_of(e, 12);
                work.opcode = IBV_WR_SEND_WITH_IMM;
                work.immediate = number << 16 | n;
                ASSERT_TRUE(e.run(work));
            }
            std::uint32_t next[kSenders] = {};
            for (std::uint32_t i = 0; i < kMessages * kSenders; ++i) {
                const ibv_wc wc = e.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                const std::uint32_t immediate = ntohl(wc.imm_data);
                ASSERT_TRUE(is_sender(immediate >> 16));
                ASSERT_EQ(immediate & 0xffff, next[immediate >> 16]++);
            }
            EXPECT_TRUE(e.has_nothing());
            channel.meet();
        };
    };
    std::vector<std::unique_ptr<Child>> children;
    for (std::uint32_t i = 0; i < kMembers; ++i)
        children.push_back(std::make_unique<Child>(member(i)));
    for (int times = 0; times < 3; ++times)
        for (auto& child : children)
            child->channel().meet();
    for (auto& child : children)
        child->expect_success();
}

// Members and senders are killed at random moments, and one joins and leaves all the time; the
// survivor gets what its own sender sends, all of it, once, in order.
TEST(MulticastProcesses, KilledAtRandomMoments) {
    Endpoint::Options options;
    options.receive_depth = 64;
    Member sender(4, options), survivor(4, options);
    ASSERT_EQ(survivor.join(), 0);
    std::mt19937 random(5);
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Child child([](Channel& channel) {
            Endpoint::Options busy;
            busy.receive_depth = 64;
            Member stays(4, busy), flits(4, busy, &stays);
            ASSERT_EQ(stays.join(), 0);
            stays.peer.qkey = 0x33333333;  // the survivor does not take what it sends
            channel.meet();
            for (std::uint64_t i = 0;; ++i) {
                stays.post_receive(i, {stays.place(i)});
                flits.post_receive(i, {flits.place(i)});
                if (i % 2 == 0)
                    flits.join();
                else
                    flits.leave();
                stays.post(send_of(stays, 20));
                poll_for(stays.send_cq.get(), Clock::duration{0});
                poll_for(stays.receive_cq.get(), Clock::duration{0});
                poll_for(flits.receive_cq.get(), Clock::duration{0});
            }
        });
        child.channel().meet();
        const auto kill_at = Clock::now() + std::chrono::microseconds(random() % 20000);
        bool killed = false;
        for (std::uint64_t i = 0; i < 20 || !killed; ++i) {
            survivor.provide(i);
            sender.memory->fill(0, 40, static_cast<std::uint32_t>(i));
            ASSERT_TRUE(sender.run(send_of(sender, 40)));
            ASSERT_NO_FATAL_FAILURE(survivor.expect_message(i, sender, 40));
            if (!killed && Clock::now() > kill_at) {
                child.kill(SIGKILL);
                killed = true;
                i = 0;
            }
        }
        child.wait();
    }
    EXPECT_TRUE(survivor.has_nothing());
}

}  // namespace
}  // namespace softhca::test
