// SPDX-License-Identifier: BSD-2-Clause
// Message sizes from nothing to several megabytes, and the two ways a WQE names its data: inline
// (every size up to the QP's limit) and gather/scatter lists of odd SGEs (every count up to the
// limit). Contents and the bytes around them are checked. Lives by an error at a boundary: of a
// 16-byte segment, a 64-byte WQE block, the MTU, a page, the end of the ring.

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

const std::size_t kSizes[] = {0,
                              1,
                              2,
                              3,
                              7,
                              8,
                              15,
                              16,
                              17,
                              31,
                              33,
                              63,
                              64,
                              65,
                              127,
                              128,
                              129,
                              255,
                              256,
                              257,
                              1023,
                              1024,
                              1025,
                              4055,
                              4056,
                              4095,
                              4096,
                              4097,
                              8191,
                              8193,
                              65535,
                              65536,
                              65537,
                              (1 << 20) - 1,
                              (1 << 20) + 3,
                              (4 << 20) + 1};

class Sizes : public testing::TestWithParam<std::tuple<Transport, Placement>> {
protected:
    Transport transport() const { return std::get<0>(GetParam()); }
    bool reads() const { return transport() == Transport::kRc || transport() == Transport::kXrc; }
    std::size_t largest() const {
        return transport() == Transport::kUd ? 4096 : kSizes[std::size(kSizes) - 1];
    }
    Endpoint::Options options() const {
        Endpoint::Options options;
        options.transport = transport();
        options.memory = 3 * ((5u << 20) + 4096);
        return options;
    }
};

std::string sized_case_name(const testing::TestParamInfo<std::tuple<Transport, Placement>>& info) {
    return std::string(name(std::get<0>(info.param))) + name(std::get<1>(info.param));
}

// SEND, then WRITE, then READ of each size; the far side checks after each that the bytes around
// the message are as they were.
TEST_P(Sizes, FromNothingToMegabytesArriveWhole) {
    constexpr std::size_t kZone = (5u << 20) + 4096;
    constexpr std::size_t kOdd = 3;  // start unaligned
    run_sides(
        std::get<1>(GetParam()),
        [&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            std::uint32_t seed = 1;
            for (const std::size_t size : kSizes) {
                if (size > largest()) break;
                SCOPED_TRACE(testing::Message() << size << " bytes");
                e.memory->fill(kOdd, size, seed);
                Work work;
                work.sges = {e.memory->sge(kOdd, size)};
                channel.meet();
                ASSERT_TRUE(e.run(work));
                if (transport() != Transport::kUd) {
                    work.opcode = IBV_WR_RDMA_WRITE;
                    work.remote = e.peer.memory + kZone + kOdd;
                    ASSERT_TRUE(e.run(work));
                }
                if (reads()) {
                    std::memset(e.memory->data() + kZone, 0xdd, size + 64);
                    work.opcode = IBV_WR_RDMA_READ;
                    work.sges = {e.memory->sge(kZone + 17, size)};
                    ASSERT_TRUE(e.run(work));
                    EXPECT_TRUE(e.memory->holds(kZone + 17, size, seed)) << "by RDMA READ";
                    EXPECT_TRUE(e.memory->untouched(kZone, 17, 0xdd));
                    EXPECT_TRUE(e.memory->untouched(kZone + 17 + size, 47, 0xdd));
                }
                ++seed;
                channel.meet();
                channel.meet();
            }
        },
        [&](Channel& channel) {
            Endpoint e(options());
            connect_over(channel, e);
            std::uint32_t seed = 1;
            for (const std::size_t size : kSizes) {
                if (size > largest()) break;
                SCOPED_TRACE(testing::Message() << size << " bytes");
                const std::size_t whole = size + e.grh();
                std::memset(e.memory->data(), 0xee, whole + 128);
                std::memset(e.memory->data() + kZone, 0xee, size + 128);
                ASSERT_EQ(e.post_receive(seed, {e.memory->sge(64, whole)}), 0);
                channel.meet();
                const ibv_wc wc = e.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                EXPECT_EQ(wc.byte_len, whole);
                EXPECT_TRUE(e.memory->holds(64 + e.grh(), size, seed)) << "by SEND";
                EXPECT_TRUE(e.memory->untouched(0, 64, 0xee));
                EXPECT_TRUE(e.memory->untouched(64 + whole, 64, 0xee));
                channel.meet();
                if (transport() != Transport::kUd) {
                    EXPECT_TRUE(e.memory->holds(kZone + kOdd, size, seed)) << "by RDMA WRITE";
                    EXPECT_TRUE(e.memory->untouched(kZone, kOdd, 0xee));
                    EXPECT_TRUE(e.memory->untouched(kZone + kOdd + size, 64, 0xee));
                }
                ++seed;
                channel.meet();
            }
        });
}

// Every inline size up to what the QP was given, with one and with several SGEs, from memory that
// is not registered and is overwritten as soon as the post returns.
TEST_P(Sizes, InlineDataOfEverySize) {
    Endpoint::Options inline_options = options();
    inline_options.inline_size = 500;
    inline_options.memory = 1 << 16;
    run_sides(
        std::get<1>(GetParam()),
        [&](Channel& channel) {
            Endpoint e(inline_options);
            ASSERT_GE(e.options.inline_size, 500u);
            connect_over(channel, e);
            channel.send(e.options.inline_size);
            std::vector<std::uint8_t> stack(e.options.inline_size);
            for (std::uint32_t size = 0; size <= e.options.inline_size; ++size) {
                SCOPED_TRACE(testing::Message() << size << " bytes inline");
                fill_pattern(stack.data(), size, size);
                Work work;
                work.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
                const auto base = reinterpret_cast<std::uint64_t>(stack.data());
                if (size % 2 == 0) {
                    work.sges = {{base, size, 0}};
                } else {
                    const std::uint32_t first = size / 3;
                    work.sges = {
                        {base, first, 0}, {base + first, 0, 0}, {base + first, size - first, 0}};
                }
                channel.meet();
                ASSERT_EQ(e.post(work), 0);
                std::memset(stack.data(), 0xaa, stack.size());
                ASSERT_TRUE(succeeded(e.wait_send()));
                if (transport() != Transport::kUd) {
                    fill_pattern(stack.data(), size, size + 7);
                    work.opcode = IBV_WR_RDMA_WRITE;
                    work.remote = e.peer.memory + 8192 + 5;
                    ASSERT_EQ(e.post(work), 0);
                    std::memset(stack.data(), 0xaa, stack.size());
                    ASSERT_TRUE(succeeded(e.wait_send()));
                }
                channel.meet();
            }
        },
        [&](Channel& channel) {
            Endpoint e(inline_options);
            connect_over(channel, e);
            const auto limit = channel.receive<std::uint32_t>();
            for (std::uint32_t size = 0; size <= limit; ++size) {
                SCOPED_TRACE(testing::Message() << size << " bytes inline");
                std::memset(e.memory->data(), 0xee, 16384);
                ASSERT_EQ(e.post_receive(size, {e.memory->sge(0, 2048)}), 0);
                channel.meet();
                const ibv_wc wc = e.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                EXPECT_EQ(wc.byte_len, size + e.grh());
                channel.meet();
                EXPECT_TRUE(e.memory->holds(e.grh(), size, size)) << "by SEND";
                EXPECT_TRUE(e.memory->untouched(e.grh() + size, 1024, 0xee));
                if (transport() != Transport::kUd) {
                    EXPECT_TRUE(e.memory->holds(8192 + 5, size, size + 7)) << "by RDMA WRITE";
                    EXPECT_TRUE(e.memory->untouched(8192 + 5 + size, 64, 0xee));
                }
            }
        });
}

// Random odd SGEs, some of them empty: `count` SGEs that sum to `total`.
std::vector<ibv_sge> scattered(std::mt19937& random, const Memory& memory, std::size_t base,
                               std::size_t count, std::size_t total) {
    std::vector<std::size_t> cuts = {0, total};
    for (std::size_t i = 1; i < count; ++i)
        cuts.push_back(random() % (total + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<ibv_sge> sges;
    for (std::size_t i = 0; i < count; ++i) {
        // Apart from each other by a gap that must stay untouched.
        sges.push_back(memory.sge(base + cuts[i] + 7 * i, cuts[i + 1] - cuts[i]));
    }
    return sges;
}

std::vector<std::uint8_t> collect(const std::vector<ibv_sge>& sges) {
    std::vector<std::uint8_t> bytes;
    for (const ibv_sge& sge : sges) {
        const auto* from = reinterpret_cast<const std::uint8_t*>(sge.addr);
        bytes.insert(bytes.end(), from, from + sge.length);
    }
    return bytes;
}

void spread(const std::vector<ibv_sge>& sges, std::uint32_t seed) {
    std::size_t index = 0;
    for (const ibv_sge& sge : sges) {
        auto* to = reinterpret_cast<std::uint8_t*>(sge.addr);
        for (std::uint32_t i = 0; i < sge.length; ++i)
            to[i] = pattern(seed, index++);
    }
}

std::size_t gaps_touched(const Memory& memory, std::vector<ibv_sge> sges, std::size_t base,
                         std::size_t end) {
    std::size_t touched = 0;
    for (std::size_t i = base; i < end; ++i) {
        const std::uint64_t address = memory.address(i);
        const bool inside = std::any_of(sges.begin(), sges.end(), [&](const ibv_sge& p) {
            return address >= p.addr && address < p.addr + p.length;
        });
        if (!inside && memory.data()[i] != 0xee) ++touched;
    }
    return touched;
}

// Each count of SGEs up to the device's limit on both sides, for SEND; for WRITE (gather) and
// READ (scatter) as well. Both sides draw the same random numbers.
TEST_P(Sizes, GatherAndScatterListsOfEveryCount) {
    // By each side for itself: a process that has opened the device has a thread beside this one,
    // and a child that is forked meanwhile may find AddressSanitizer's allocator locked.
    const auto with_longest_lists = [this] {
        const auto context = open_device();
        Endpoint::Options list_options = options();
        list_options.memory = 1 << 16;
        list_options.send_sges = list_options.receive_sges =
            static_cast<std::uint32_t>(device_attributes(context.get()).max_sge);
        list_options.send_depth = list_options.receive_depth = 16;
        return list_options;
    };
    constexpr std::size_t kRemote = 40000;
    run_sides(
        std::get<1>(GetParam()),
        [&](Channel& channel) {
            Endpoint e(with_longest_lists());
            const std::uint32_t limit = e.options.send_sges;
            ASSERT_GE(limit, 2u);
            connect_over(channel, e);
            std::mt19937 random(1);
            for (std::uint32_t count = 0; count <= limit; ++count) {
                SCOPED_TRACE(testing::Message() << count << " SGEs");
                const std::size_t total = count == 0 ? 0 : 1 + random() % 3000;
                Work work;
                work.sges = scattered(random, *e.memory, 1, count, total);
                spread(work.sges, count);
                channel.send(total);
                channel.meet();
                ASSERT_TRUE(e.run(work)) << "SEND";
                if (transport() != Transport::kUd) {
                    work.opcode = IBV_WR_RDMA_WRITE;
                    work.remote = e.peer.memory + kRemote;
                    ASSERT_TRUE(e.run(work)) << "RDMA WRITE";
                }
                if (reads()) {
                    std::memset(e.memory->data(), 0xee, 8192);
                    work.opcode = IBV_WR_RDMA_READ;
                    ASSERT_TRUE(e.run(work)) << "RDMA READ";
                    const auto bytes = collect(work.sges);
                    EXPECT_TRUE(has_pattern(bytes.data(), bytes.size(), count)) << "RDMA READ";
                    EXPECT_EQ(gaps_touched(*e.memory, work.sges, 0, 8192), 0u);
                }
                channel.meet();
            }
        },
        [&](Channel& channel) {
            Endpoint e(with_longest_lists());
            const std::uint32_t limit = e.options.send_sges;
            ASSERT_GE(limit, 2u);
            connect_over(channel, e);
            std::mt19937 random(2);
            for (std::uint32_t count = 0; count <= limit; ++count) {
                SCOPED_TRACE(testing::Message() << count << " SGEs");
                const auto total = channel.receive<std::size_t>();
                std::memset(e.memory->data(), 0xee, e.memory->size());
                // A datagram's header takes room in the list as well.
                std::size_t sges_here = limit - count;
                if (sges_here == 0 && total + e.grh() > 0) sges_here = 1;
                auto sges =
                    scattered(random, *e.memory, 1, sges_here, sges_here ? total + e.grh() : 0);
                // libmlx5 leaves empty SGEs out of a QP's receives but not out of an SRQ's, where
                // they mean 2^31 bytes to the device.
                if (e.srq) std::erase_if(sges, [](const ibv_sge& p) { return p.length == 0; });
                ASSERT_EQ(e.post_receive(count, sges), 0);
                channel.meet();
                const ibv_wc wc = e.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                EXPECT_EQ(wc.byte_len, total + e.grh());
                channel.meet();
                const auto bytes = collect(sges);
                EXPECT_TRUE(has_pattern(bytes.data() + e.grh(), total, count)) << "SEND";
                EXPECT_EQ(gaps_touched(*e.memory, sges, 0, 8192), 0u);
                if (transport() != Transport::kUd) {
                    EXPECT_TRUE(e.memory->holds(kRemote, total, count)) << "RDMA WRITE";
                }
            }
        });
}

INSTANTIATE_TEST_SUITE_P(Each, Sizes,
                         testing::Combine(testing::Values(Transport::kRc, Transport::kUc,
                                                          Transport::kUd, Transport::kXrc),
                                          testing::Values(Placement::kThreads,
                                                          Placement::kProcesses)),
                         sized_case_name);

// More inline data or SGEs than the QP was made for is refused by the post, and nothing is sent.
TEST(SizeLimits, TooMuchIsRefusedAtThePost) {
    Pair pair;
    std::vector<std::uint8_t> data(pair.a.options.inline_size + 1);
    Work work;
    work.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {
        {reinterpret_cast<std::uint64_t>(data.data()), static_cast<std::uint32_t>(data.size()), 0}};
    EXPECT_NE(pair.a.post(work), 0);
    work.flags = IBV_SEND_SIGNALED;
    work.sges.assign(64, pair.a.memory->sge(0, 1));
    EXPECT_NE(pair.a.post(work), 0);
    EXPECT_FALSE(poll_for(pair.a.send_cq.get(), std::chrono::milliseconds(20)));
    EXPECT_EQ(state_of(pair.a.qp.get()), IBV_QPS_RTS);
    work.sges = {pair.a.memory->sge(0, 100)};
    EXPECT_TRUE(pair.a.run(work)) << "after refused posts the QP works on";
}

}  // namespace
}  // namespace softhca::test
