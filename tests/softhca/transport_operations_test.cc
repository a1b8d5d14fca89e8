// SPDX-License-Identifier: BSD-2-Clause
// Every operation of every transport (IBTA 9.4 to 9.9), between two threads and between two
// processes: contents on the far side, the fields of both completions, and which operations a
// transport must refuse. Lives by a wrong opcode, length, immediate value, address or neighbour
// byte.

#include <endian.h>
#include <netinet/in.h>

#include <cstring>
#include <tuple>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::size_t kLength = 3001;            // odd, below the MTU so that UD can carry it
constexpr std::size_t kTargetOffset = 4096 + 8;  // where the far side is written and read
constexpr std::size_t kReceive = 16384;          // where it receives
constexpr std::size_t kSource = 512 + 1;

std::vector<ibv_wr_opcode> operations(Transport transport) {
    std::vector<ibv_wr_opcode> list = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};
    if (transport == Transport::kUd) return list;
    list.insert(list.end(), {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM});
    if (transport == Transport::kUc) return list;
    list.insert(list.end(),
                {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD});
    return list;
}

ibv_wc_opcode completed_as(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        default:
            return IBV_WC_SEND;
    }
}

bool takes_receive(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool has_immediate(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

std::uint64_t word(const Endpoint& endpoint, std::size_t offset) {
    std::uint64_t value;
    std::memcpy(&value, endpoint.memory->data() + offset, sizeof value);
    return value;
}

void set_word(const Endpoint& endpoint, std::size_t offset, std::uint64_t value) {
    std::memcpy(endpoint.memory->data() + offset, &value, sizeof value);
}

void respond(Channel& channel, Endpoint& e) {
    std::uint32_t round = 0;
    for (const ibv_wr_opcode opcode : operations(e.options.transport)) {
        SCOPED_TRACE(testing::Message() << "responder, opcode " << opcode);
        ++round;
        std::memset(e.memory->data(), 0xee, e.memory->size());
        if (opcode == IBV_WR_RDMA_READ) e.memory->fill(kTargetOffset, kLength, round);
        if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) set_word(e, kTargetOffset, 77);
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) set_word(e, kTargetOffset, ~0ULL);
        if (takes_receive(opcode)) {
            ASSERT_EQ(e.post_receive(round, {e.memory->sge(kReceive, kLength + e.grh())}), 0);
        }
        channel.meet();
        if (takes_receive(opcode)) {
            const ibv_wc wc = e.wait_receive();
            ASSERT_TRUE(succeeded(wc));
            EXPECT_EQ(wc.wr_id, round);
            EXPECT_EQ(wc.opcode, opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
                                                                      : IBV_WC_RECV);
            EXPECT_EQ(wc.byte_len, kLength + (opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : e.grh()));
            EXPECT_EQ(wc.qp_num, e.receiver()->qp_num);
            EXPECT_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, has_immediate(opcode));
            if (has_immediate(opcode)) {
                EXPECT_EQ(ntohl(wc.imm_data), 0xfeed0000u + round);
            }
            if (e.options.transport == Transport::kUd) {
                EXPECT_EQ(wc.src_qp, e.peer.qpn);
                EXPECT_EQ(wc.slid, e.peer.lid);
            }
        }
        channel.meet();
        switch (opcode) {
            case IBV_WR_SEND:
            case IBV_WR_SEND_WITH_IMM:
                EXPECT_TRUE(e.memory->holds(kReceive + e.grh(), kLength, round));
                EXPECT_TRUE(e.memory->untouched(0, kReceive, 0xee));
                EXPECT_TRUE(e.memory->untouched(kReceive + e.grh() + kLength, 4096, 0xee));
                break;
            case IBV_WR_RDMA_WRITE:
            case IBV_WR_RDMA_WRITE_WITH_IMM:
                EXPECT_TRUE(e.memory->holds(kTargetOffset, kLength, round));
                EXPECT_TRUE(e.memory->untouched(0, kTargetOffset, 0xee));
                EXPECT_TRUE(e.memory->untouched(kTargetOffset + kLength, 16384, 0xee));
                break;
            case IBV_WR_ATOMIC_CMP_AND_SWP:
                EXPECT_EQ(word(e, kTargetOffset), 1234u);
                break;
            case IBV_WR_ATOMIC_FETCH_AND_ADD:
                EXPECT_EQ(word(e, kTargetOffset), 41u);
                break;
            default:
                break;
        }
        channel.meet();
    }
    EXPECT_FALSE(poll_for(e.receive_cq.get(), std::chrono::milliseconds(5)))
        << "a completion too many";
}

void initiate(Channel& channel, Endpoint& e) {
    std::uint32_t round = 0;
    for (const ibv_wr_opcode opcode : operations(e.options.transport)) {
        SCOPED_TRACE(testing::Message() << "initiator, opcode " << opcode);
        ++round;
        const bool atomic =
            opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        std::memset(e.memory->data(), 0xdd, e.memory->size());
        if (!atomic && opcode != IBV_WR_RDMA_READ) e.memory->fill(kSource, kLength, round);
        channel.meet();
        Work work;
        work.opcode = opcode;
        work.id = 100 + round;
        work.sges = {e.memory->sge(kSource, atomic ? 8 : kLength)};
        work.immediate = 0xfeed0000u + round;
        work.remote = e.peer.memory + kTargetOffset;
        work.compare_add = opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 77 : 42;
        work.swap = 1234;
        ASSERT_EQ(e.post(work), 0);
        const ibv_wc wc = e.wait_send();
        ASSERT_TRUE(succeeded(wc));
        EXPECT_EQ(wc.wr_id, work.id);
        EXPECT_EQ(wc.opcode, completed_as(opcode));
        EXPECT_EQ(wc.qp_num, e.qp->qp_num);
        if (opcode == IBV_WR_RDMA_READ) {
            EXPECT_EQ(wc.byte_len, kLength);
            EXPECT_TRUE(e.memory->holds(kSource, kLength, round));
            EXPECT_TRUE(e.memory->untouched(0, kSource, 0xdd));
            EXPECT_TRUE(e.memory->untouched(kSource + kLength, 4096, 0xdd));
        }
        if (atomic) {
            EXPECT_EQ(wc.byte_len, 8u);
            EXPECT_EQ(word(e, kSource), opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 77 : ~0ULL);
        }
        channel.meet();
        channel.meet();
    }
    EXPECT_FALSE(poll_for(e.send_cq.get(), std::chrono::milliseconds(5)))
        << "a completion too many";
}

class Operations : public testing::TestWithParam<std::tuple<Transport, Placement>> {
protected:
    Endpoint::Options options() const {
        Endpoint::Options options;
        options.transport = std::get<0>(GetParam());
        return options;
    }
    Placement placement() const { return std::get<1>(GetParam()); }
};

std::string operation_case_name(
    const testing::TestParamInfo<std::tuple<Transport, Placement>>& info) {
    return std::string(name(std::get<0>(info.param))) + name(std::get<1>(info.param));
}

TEST_P(Operations, MoveTheRightBytesAndReportThem) {
    run_sides(
        placement(),
        [&](Channel& channel) {
            Endpoint endpoint(options());
            connect_over(channel, endpoint);
            initiate(channel, endpoint);
        },
        [&](Channel& channel) {
            Endpoint endpoint(options());
            connect_over(channel, endpoint);
            respond(channel, endpoint);
        });
}

TEST_P(Operations, ReceiveThroughASharedReceiveQueue) {
    Endpoint::Options with_srq = options();
    if (with_srq.transport == Transport::kUc) GTEST_SKIP() << "UC QPs take no SRQ on this device";
    with_srq.srq = true;
    run_sides(
        placement(),
        [&](Channel& channel) {
            Endpoint endpoint(with_srq);
            connect_over(channel, endpoint);
            initiate(channel, endpoint);
        },
        [&](Channel& channel) {
            Endpoint endpoint(with_srq);
            connect_over(channel, endpoint);
            respond(channel, endpoint);
        });
}

// A failed comparison leaves the word alone and reports it.
TEST(AtomicOperations, CompareThatFailsDoesNotSwap) {
    for (const Transport transport : {Transport::kRc, Transport::kXrc}) {
        SCOPED_TRACE(name(transport));
        Endpoint::Options options;
        options.transport = transport;
        Pair pair(options);
        set_word(pair.b, kTargetOffset, 5);
        Work work;
        work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        work.sges = {pair.a.memory->sge(0, 8)};
        work.remote = pair.b.memory->address(kTargetOffset);
        work.compare_add = 6;
        work.swap = 7;
        ASSERT_TRUE(pair.a.run(work));
        EXPECT_EQ(word(pair.a, 0), 5u);
        EXPECT_EQ(word(pair.b, kTargetOffset), 5u);
    }
}

// Several QPs add to one word at once; every old value is seen exactly once.
TEST(AtomicOperations, OfManyQueuePairsDoNotLoseAnAddition) {
    constexpr int kPairs = 4;
    constexpr int kRounds = 2000;
    Endpoint::Options options;
    Endpoint owner(options);
    set_word(owner, kTargetOffset, 0);
    std::vector<std::unique_ptr<Endpoint>> near;
    std::vector<std::unique_ptr<Endpoint>> far;
    for (int i = 0; i < kPairs; ++i) {
        near.push_back(std::make_unique<Endpoint>(options, &owner));
        far.push_back(std::make_unique<Endpoint>(options, &owner));
        near.back()->connect(far.back()->address());
        far.back()->connect(near.back()->address());
    }
    std::vector<std::vector<std::uint64_t>> seen(kPairs);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kPairs; ++i) {
        threads.emplace_back([&, i] {
            Endpoint& e = *near[i];
            for (int round = 0; round < kRounds; ++round) {
                Work work;
                work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
                work.sges = {e.memory->sge(0, 8)};
                work.remote = owner.memory->address(kTargetOffset);
                work.rkey = owner.memory->mr()->rkey;
                work.compare_add = 1;
                if (!e.run(work)) return;
                seen[i].push_back(word(e, 0));
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    EXPECT_EQ(word(owner, kTargetOffset), std::uint64_t{kPairs} * kRounds);
    std::vector<bool> once(kPairs * kRounds, false);
    for (const auto& values : seen) {
        for (const std::uint64_t value : values) {
            ASSERT_LT(value, once.size());
            EXPECT_FALSE(once[value]) << "value " << value << " was returned twice";
            once[value] = true;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Operations,
                         testing::Combine(testing::Values(Transport::kRc, Transport::kUc,
                                                          Transport::kUd, Transport::kXrc),
                                          testing::Values(Placement::kThreads,
                                                          Placement::kProcesses)),
                         operation_case_name);

}  // namespace
}  // namespace softhca::test
