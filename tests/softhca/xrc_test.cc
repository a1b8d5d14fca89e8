// SPDX-License-Identifier: BSD-2-Clause
// Extended reliable connection (IBTA annex A14): domains shared between processes by a file, one
// connection that reaches many SRQs of a process, SRQs of other processes in the domain,
// protection by the PD of the SRQ that a request names, and numbers that are wrong.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "segment_file.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

class File {
public:
    File() : fd_(mkstemp(path_)) {
        if (fd_ < 0) fail("mkstemp");
    }
    ~File() {
        close(fd_);
        unlink(path_);
    }
    int fd() const { return fd_; }
    const char* path() const { return path_; }

private:
    char path_[32] = "/tmp/xrc_domain_XXXXXX";
    int fd_;
};

Endpoint::Options xrc(int file = -1) {
    Endpoint::Options options;
    options.transport = Transport::kXrc;
    options.xrcd_file = file;
    return options;
}

Owned<ibv_srq> another_srq(const Endpoint& e, ibv_pd* pd, ibv_cq* cq) {
    ibv_srq_init_attr_ex attributes = {};
    attributes.attr.max_wr = 16;
    attributes.attr.max_sge = 1;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                           IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = pd;
    attributes.xrcd = e.xrcd.get();
    attributes.cq = cq;
    return Owned<ibv_srq>(check(ibv_create_srq_ex(e.context.get(), &attributes), "XRC SRQ"));
}

std::uint32_t number_of(ibv_srq* srq) {
    std::uint32_t number = 0;
    if (ibv_get_srq_num(srq, &number) != 0) fail("ibv_get_srq_num");
    return number;
}

int post_to(ibv_srq* srq, std::uint64_t id, ibv_sge sge) {
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_srq_recv(srq, &wr, &bad);
}

// One connection, many SRQs: the request says which.
TEST(Xrc, OneConnectionReachesEverySrqOfTheProcess) {
    Pair pair(xrc());
    constexpr std::uint32_t kQueues = 20;
    std::vector<Owned<ibv_srq>> queues;
    for (std::uint32_t i = 0; i < kQueues; ++i) {
        queues.push_back(another_srq(pair.b, pair.b.pd.get(), pair.b.receive_cq.get()));
        ASSERT_EQ(post_to(queues[i].get(), i, pair.b.memory->sge(i * 256, 256)), 0);
    }
    for (std::uint32_t turn = 0; turn < kQueues; ++turn) {
        const std::uint32_t i = (turn * 7) % kQueues;
        pair.a.memory->fill(0, 64, i);
        pair.a.peer.srqn = number_of(queues[i].get());
        ASSERT_TRUE(pair.a.run(send_of(pair.a)));
        const ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, i);
        EXPECT_TRUE(pair.b.memory->holds(i * 256, 64, i));
    }
}

// Each SRQ has its own CQ: a completion goes to that of the SRQ.
TEST(Xrc, CompletionGoesToTheCqOfTheSrq) {
    Pair pair(xrc());
    const auto cq = create_cq(pair.b.context.get(), 16);
    const auto srq = another_srq(pair.b, pair.b.pd.get(), cq.get());
    ASSERT_EQ(post_to(srq.get(), 5, pair.b.memory->sge(0, 256)), 0);
    pair.a.peer.srqn = number_of(srq.get());
    ASSERT_TRUE(pair.a.run(send_of(pair.a)));
    const ibv_wc wc = pair.b.wait(cq.get());
    EXPECT_TRUE(succeeded(wc));
    EXPECT_EQ(wc.wr_id, 5u);
}

// A process with no connection of its own receives through that of another: A sends over its
// connection to B, naming an SRQ of C, which shares the domain with B by a file.
TEST(Xrc, SrqOfAThirdProcessInTheDomain) {
    const File file;
    Child third([&](Channel& channel) {
        Endpoint e(xrc(file.fd()));
        for (std::uint64_t i = 0; i < 8; ++i)
            ASSERT_EQ(post_to(e.srq.get(), i, e.memory->sge(i * 256, 256)), 0);
        channel.send(e.address());
        for (std::uint32_t i = 0; i < 8; ++i) {
            const ibv_wc wc = e.wait_receive();
            ASSERT_TRUE(succeeded(wc));
            EXPECT_EQ(wc.wr_id, i);
            EXPECT_TRUE(e.memory->holds(i * 256, 64, i));
        }
        channel.meet();
    });
    run_sides(
        Placement::kProcesses,
        [&](Channel& channel) {
            Endpoint a(xrc());
            connect_over(channel, a);
            const auto of_third = third.channel().receive<Address>();
            a.peer.srqn = of_third.srqn;
            for (std::uint32_t i = 0; i < 8; ++i) {
                a.memory->fill(0, 64, i);
                ASSERT_TRUE(a.run(send_of(a)));
            }
            third.channel().meet();
            // RDMA to the third's memory is allowed by the PD of the SRQ that is named.
            a.peer.memory = of_third.memory;
            a.peer.rkey = of_third.rkey;
            channel.meet();
        },
        [&](Channel& channel) {
            Endpoint b(xrc(file.fd()));
            connect_over(channel, b);
            channel.meet();
        });
    third.expect_success();
}

TEST(Xrc, DomainsOfOneFileAreOneAndOthersAreNot) {
    const File one;
    const File two;
    const auto context = open_device();
    const auto open = [&](int fd, int flags) {
        ibv_xrcd_init_attr attributes = {};
        attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attributes.fd = fd;
        attributes.oflags = flags;
        return Owned<ibv_xrcd>(ibv_open_xrcd(context.get(), &attributes));
    };
    EXPECT_FALSE(open(one.fd(), 0)) << "without O_CREAT the domain must be there";
    const auto first = open(one.fd(), O_CREAT);
    ASSERT_TRUE(first);
    EXPECT_TRUE(open(one.fd(), 0)) << "it is there now";
    EXPECT_FALSE(open(one.fd(), O_CREAT | O_EXCL)) << "and cannot be made anew";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(open(two.fd(), 0)) << "another file is another domain";
    const int again = ::open(one.path(), O_RDONLY);
    EXPECT_TRUE(open(again, 0)) << "the file counts, not the descriptor";
    close(again);
    EXPECT_TRUE(open(-1, O_CREAT)) << "a domain of no file";
}

// The request names an SRQ; its PD, not that of any QP, says which memory may be touched (A14.5).
TEST(Xrc, ProtectionIsThatOfTheSrqsDomain) {
    Pair pair(xrc());
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair.b.context.get()), "ibv_alloc_pd"));
    const Memory of_other(other.get(), 4096);
    const auto srq = another_srq(pair.b, other.get(), pair.b.receive_cq.get());
    pair.a.memory->fill(0, 64, 3);
    Work work = send_of(pair.a);
    work.opcode = IBV_WR_RDMA_WRITE;
    pair.a.peer.srqn = number_of(srq.get());
    work.remote = of_other.address(128);
    work.rkey = of_other.mr()->rkey;
    EXPECT_TRUE(pair.a.run(work)) << "the key belongs to the PD of the SRQ named";
    EXPECT_TRUE(has_pattern(of_other.data() + 128, 64, 3));
    // The same SRQ with a key of the QP's owner's PD.
    work.remote = pair.b.memory->address();
    work.rkey = pair.b.memory->mr()->rkey;
    ASSERT_EQ(pair.a.post(work), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
}

TEST(Xrc, NumberOfNoSrqIsAnError) {
    Pair pair(xrc());
    pair.a.peer.srqn = 0xfffff0;
    ASSERT_EQ(pair.a.post(send_of(pair.a)), 0);
    const ibv_wc wc = pair.a.wait_send();
    EXPECT_TRUE(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_OP_ERR)
        << describe(wc);
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_ERR);
}

// An SRQ of another domain must not be reachable.
TEST(Xrc, SrqOfAnotherDomainIsAnError) {
    Pair pair(xrc());
    Endpoint stranger(xrc(), &pair.a);
    ASSERT_EQ(post_to(stranger.srq.get(), 1, stranger.memory->sge(0, 256)), 0);
    pair.a.peer.srqn = stranger.address().srqn;
    ASSERT_EQ(pair.a.post(send_of(pair.a)), 0);
    EXPECT_NE(pair.a.wait_send().status, IBV_WC_SUCCESS);
    EXPECT_FALSE(poll_for(stranger.receive_cq.get(), std::chrono::milliseconds(20)));
}

// An ordinary SRQ has no XRC domain.
TEST(Xrc, OrdinarySrqIsAnError) {
    Pair pair(xrc());
    Endpoint::Options ordinary;
    ordinary.srq = true;
    Endpoint stranger(ordinary, &pair.a);
    ASSERT_EQ(post_to(stranger.srq.get(), 1, stranger.memory->sge(0, 256)), 0);
    std::uint32_t number = 0;
    if (ibv_get_srq_num(stranger.srq.get(), &number) != 0) GTEST_SKIP() << "it has no number";
    pair.a.peer.srqn = number;
    ASSERT_EQ(pair.a.post(send_of(pair.a)), 0);
    EXPECT_NE(pair.a.wait_send().status, IBV_WC_SUCCESS);
}

TEST(Xrc, SendToASrqThatWasDestroyedIsAnError) {
    Pair pair(xrc());
    auto srq = another_srq(pair.b, pair.b.pd.get(), pair.b.receive_cq.get());
    ASSERT_EQ(post_to(srq.get(), 1, pair.b.memory->sge(0, 256)), 0);
    pair.a.peer.srqn = number_of(srq.get());
    ASSERT_TRUE(pair.a.run(send_of(pair.a)));
    ASSERT_TRUE(succeeded(pair.b.wait_receive()));
    srq.reset();
    ASSERT_EQ(pair.a.post(send_of(pair.a)), 0);
    EXPECT_NE(pair.a.wait_send().status, IBV_WC_SUCCESS);
}

// An XRC target may be opened by number in another process of the domain, which keeps it alive
// when its creator closes it (A14.2.8).
TEST(Xrc, TargetOpenedByAnotherProcess) {
    const File file;
    run_sides(
        Placement::kProcesses,
        [&](Channel& channel) {
            Endpoint owner(xrc(file.fd()));
            owner.connect(owner.address());
            channel.send(owner.address());
            channel.meet();
            owner.target.reset();
            // The other process holds it open: it still receives.
            for (std::uint64_t i = 0; i < 2; ++i)
                ASSERT_EQ(post_to(owner.srq.get(), i, owner.memory->sge(i * 256, 256)), 0);
            owner.memory->fill(1024, 64, 6);
            Work work;
            work.sges = {owner.memory->sge(1024, 64)};
            EXPECT_TRUE(owner.run(work));
            EXPECT_TRUE(succeeded(owner.wait_receive()));
            EXPECT_TRUE(owner.memory->holds(0, 64, 6));
            channel.meet();
        },
        [&](Channel& channel) {
            Endpoint e(xrc(file.fd()));
            const auto of_owner = channel.receive<Address>();
            ibv_qp_open_attr attributes = {};
            attributes.comp_mask =
                IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
            attributes.qp_num = of_owner.target_qpn;
            attributes.xrcd = e.xrcd.get();
            attributes.qp_type = IBV_QPT_XRC_RECV;
            // Never destroyed: ibv_destroy_qp of an opened QP crashes in libmlx5 44, which frees a
            // doorbell record that such a QP does not have.
            ibv_qp* const opened = ibv_open_qp(e.context.get(), &attributes);
            EXPECT_NE(opened, nullptr) << std::strerror(errno);
            if (opened != nullptr) {
                EXPECT_EQ(state_of(opened), IBV_QPS_RTR);
            }
            channel.meet();
            channel.meet();
            if (opened != nullptr) static_cast<void>(e.xrcd.release());  // in use by it
        });
}

// When the creator of a target dies, the target lives on with the process that has opened it, and
// goes with it.
TEST(Xrc, TargetOutlivesItsCreator) {
    const File file;
    Child creator([&](Channel& channel) {
        Endpoint e(xrc(file.fd()));
        connect_over(channel, e);
        channel.meet();
        channel.meet();  // it is killed before
    });
    std::optional<Child> opener;
    opener.emplace([&](Channel& channel) {
        Endpoint e(xrc(file.fd()));
        ibv_qp_open_attr attributes = {};
        attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        attributes.qp_num = channel.receive<Address>().target_qpn;
        attributes.xrcd = e.xrcd.get();
        attributes.qp_type = IBV_QPT_XRC_RECV;
        if (ibv_open_qp(e.context.get(), &attributes) == nullptr) fail("ibv_open_qp");
        for (std::uint64_t i = 0; i < 2; ++i)
            if (post_to(e.srq.get(), i, e.memory->sge(i * 256, 256)) != 0) fail("a receive");
        channel.send(e.address());
        for (int i = 0; i < 2; ++i)
            channel.send(succeeded(e.wait_receive()) ? 'y' : 'n');
        channel.meet();  // it is killed before
    });
    Endpoint::Options options = xrc();
    options.timeout = 12;  // 16.8 ms, four times
    options.retry_count = 3;
    Endpoint sender(options);
    connect_over(creator.channel(), sender);
    creator.channel().meet();
    opener->channel().send(sender.peer);
    sender.peer.srqn = opener->channel().receive<Address>().srqn;
    EXPECT_TRUE(sender.run(send_of(sender)));
    EXPECT_EQ(opener->channel().receive<char>(), 'y') << "while its creator lives";

    const SegmentFile segment;
    const auto wait_until_freed = [&](const std::function<bool()>& freed) {
        const auto end = Clock::now() + kDeadline;
        while (!freed() && Clock::now() < end)
            open_device();  // a process that joins reclaims what dead ones have left
        return freed();
    };
    const auto is_reclaimed = [&](pid_t pid) {
        return std::none_of(std::begin(segment->processes), std::end(segment->processes),
                            [&](const device::Process& process) {
                                return process.state.load() != device::kFree && process.pid == pid;
                            });
    };
    const pid_t first = creator.pid(), second = opener->pid();
    creator.kill(SIGKILL);
    creator.wait();
    ASSERT_TRUE(wait_until_freed([&] { return is_reclaimed(first); }));
    EXPECT_TRUE(sender.run(send_of(sender)));
    EXPECT_EQ(opener->channel().receive<char>(), 'y') << "after its creator's death";
    opener->kill(SIGKILL);
    opener->wait();
    ASSERT_TRUE(wait_until_freed([&] { return is_reclaimed(second); }));
    ASSERT_EQ(sender.post(send_of(sender)), 0);
    EXPECT_TRUE(has_status(sender.wait_send(), IBV_WC_RETRY_EXC_ERR, kVendorTransportRetry));
}

}  // namespace
}  // namespace softhca::test
