// SPDX-License-Identifier: BSD-2-Clause
// Messages that come by packets, in order or not (SOFTHCA_DEVICE=packets, reorder), and what is
// left of one whose sender has died. The variants softhca.TRAIT.packets run these cases with a
// trait each.
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "chosen_trait.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// What a thread that looks at the memory sees of a message that is being written: some of it and
// not the end, or the end and not the beginning, if it only looks at enough of them.
class Packets : public testing::TestWithParam<ibv_wr_opcode> {
protected:
    static constexpr std::size_t kBytes = 16384;  // four packets
    struct Seen {
        bool beginning_without_end = false, end_without_beginning = false;
    };

    // One message; what was seen of it before its completion.
    void transfer(Pair& pair, std::uint8_t value, Seen& seen) {
        const bool reads = GetParam() == IBV_WR_RDMA_READ;
        Endpoint& to = reads ? pair.a : pair.b;
        const Endpoint& from = reads ? pair.b : pair.a;
        memset(from.memory->data(), value, kBytes);
        if (GetParam() == IBV_WR_SEND) {
            ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, kBytes)}), 0);
        }
        std::atomic<bool> ended{false};
        std::thread reader([&] {
            const auto at = [&](std::size_t place) {
                return __atomic_load_n(to.memory->data() + place, __ATOMIC_ACQUIRE) == value;
            };
            while (!ended) {
                // The later one is looked at first.
                if (!at(kBytes - 1) && at(0) && !at(kBytes - 1)) seen.beginning_without_end = true;
                if (!at(0) && at(kBytes - 1) && !at(0)) seen.end_without_beginning = true;
            }
        });
        Work work;
        work.opcode = GetParam();
        work.sges = {pair.a.memory->sge(0, kBytes)};
        work.remote = pair.a.peer.memory;
        work.rkey = pair.a.peer.rkey;
        const bool posted = pair.a.post(work) == 0;
        const ibv_wc done = pair.a.wait_send();
        const auto holds = to.memory->untouched(0, kBytes, value);
        ended = true;
        reader.join();
        ASSERT_TRUE(posted);
        ASSERT_TRUE(succeeded(done));
        EXPECT_TRUE(holds) << "all of it is there with the completion";
        if (GetParam() == IBV_WR_SEND) {
            EXPECT_EQ(pair.b.wait_receive().byte_len, kBytes);
        }
    }
};

TEST_P(Packets, ComeOneByOne) {
    const bool packets = chosen(DeviceTrait::kPackets), reorder = chosen(DeviceTrait::kReorder);
    Pair pair;
    Seen seen;
    const auto end = Clock::now() + kDeadline;
    for (unsigned round = 1; Clock::now() < end; ++round) {
        ASSERT_NO_FATAL_FAILURE(transfer(pair, static_cast<std::uint8_t>(round), seen));
        const bool enough = reorder   ? seen.end_without_beginning
                            : packets ? seen.beginning_without_end
                                      : round == 50;
        if (enough) break;
    }
    EXPECT_EQ(seen.end_without_beginning, reorder);
    if (packets && !reorder) {
        EXPECT_TRUE(seen.beginning_without_end);
    }
}
INSTANTIATE_TEST_SUITE_P(DeviceTraits, Packets,
                         testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ),
                         [](const auto& info) {
                             return info.param == IBV_WR_RDMA_WRITE ? "write"
                                    : info.param == IBV_WR_SEND     ? "send"
                                                                    : "read";
                         });

// The packets of a message need not end where the buffers of either side do.
TEST(PacketsOfSeveralBuffers, ArriveInTheirOrder) {
    Pair pair;
    const Endpoint &a = pair.a, &b = pair.b;
    constexpr std::size_t kBytes = 16384;  // four packets
    a.memory->fill(0, kBytes, 3);
    // The buffers are apart from each other, and in another order than in memory. The first packet
    // has three of them, and the second ends with one.
    const std::size_t lengths[] = {100, 3000, 5092, 8192};
    std::vector<std::uint8_t> sent;
    Work work;
    std::size_t at = 64000;
    for (const std::size_t length : lengths) {
        at -= length + 256;
        a.memory->fill(at, length, static_cast<std::uint32_t>(length));
        work.sges.push_back(a.memory->sge(at, length));
        sent.insert(sent.end(), a.memory->data() + at, a.memory->data() + at + length);
    }
    ASSERT_EQ(sent.size(), kBytes);
    const auto received = [&](const std::vector<ibv_sge>& sges) {
        std::vector<std::uint8_t> bytes;
        for (const ibv_sge& sge : sges) {
            const auto* const from = reinterpret_cast<const std::uint8_t*>(sge.addr);
            bytes.insert(bytes.end(), from, from + sge.length);
        }
        return bytes;
    };
    const std::vector<ibv_sge> into = {b.memory->sge(40000, 6000), b.memory->sge(20000, 4240),
                                       b.memory->sge(1000, 6144)};
    ASSERT_EQ(pair.b.post_receive(1, into), 0);
    ASSERT_TRUE(pair.a.run(work));
    EXPECT_EQ(pair.b.wait_receive().byte_len, kBytes);
    EXPECT_EQ(received(into), sent);
    // A READ into the same buffers, of contiguous memory.
    b.memory->fill(0, kBytes, 9);
    work.opcode = IBV_WR_RDMA_READ;
    work.remote = b.memory->address();
    work.rkey = b.memory->mr()->rkey;
    ASSERT_TRUE(pair.a.run(work));
    const std::vector<std::uint8_t> read = received(work.sges);
    EXPECT_TRUE(has_pattern(read.data(), read.size(), 9));
}

// A sender that dies in the middle of a message has taken a receive of the SRQ: in the error state
// the target gives it back, and says when it takes no more.
class BrokenOff : public testing::TestWithParam<Transport> {};

TEST_P(BrokenOff, GivesItsReceiveBackInTheErrorState) {
    if (!chosen(DeviceTrait::kPackets)) GTEST_SKIP() << "no message has a middle";
    constexpr std::size_t kLong = 1 << 20;
    EndpointOptions options;
    options.transport = GetParam();
    options.srq = true;
    options.memory = kLong;
    bool broken_off = false;
    const auto end = Clock::now() + kDeadline;
    while (!broken_off && Clock::now() < end) {
        Child child([&](Channel& channel) {
            Endpoint sender(options);
            connect_over(channel, sender);
            channel.meet();
            for (;;) {
                Work work = send_of(sender, kLong);
                if (sender.post(work) != 0 || sender.wait_send().status != IBV_WC_SUCCESS) return;
            }
        });
        Endpoint receiver(options);
        connect_over(child.channel(), receiver);
        constexpr unsigned kReceives = 16;
        for (unsigned i = 0; i < kReceives; ++i)
            ASSERT_EQ(receiver.post_receive(i, {receiver.memory->sge(0, kLong)}), 0);
        child.channel().meet();
        ASSERT_TRUE(succeeded(receiver.wait_receive()));
        child.kill(SIGKILL);
        child.wait();
        receiver.to_error();
        ASSERT_TRUE(got_qp_event(receiver.context.get(), IBV_EVENT_QP_LAST_WQE_REACHED,
                                 receiver.receiver()));
        ibv_wc completion;
        while (ibv_poll_cq(receiver.receive_cq.get(), 1, &completion) == 1)
            if (completion.status != IBV_WC_SUCCESS) {
                EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
                EXPECT_EQ(completion.qp_num, receiver.receiver()->qp_num);
                EXPECT_LT(completion.wr_id, kReceives);
                broken_off = true;
            }
    }
    EXPECT_TRUE(broken_off);
}
INSTANTIATE_TEST_SUITE_P(DeviceTraits, BrokenOff, testing::Values(Transport::kRc, Transport::kXrc),
                         [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace softhca::test
