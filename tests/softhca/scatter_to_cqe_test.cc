// SPDX-License-Identifier: BSD-2-Clause
// Scatter to CQE (mlx5): small payloads travel inside the completion and libmlx5 copies them to
// their place when it is polled: up to 32 bytes in a 64-byte CQE, 64 in a 128-byte one. Receives,
// receives of an SRQ, and answers to READ and atomics of a QP that signals all. On and off
// (MLX5_SCATTER_TO_CQE), with one SGE and with several: the same bytes must arrive at the same
// place.

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstring>

#include "shown.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// Inline-scatter bits of op_own, in the entry that a poll would take next; 0 when there is none.
unsigned scatter_bits_of_next(ibv_cq* cq) {
    const mlx5dv_cq layout = shown(cq);
    const std::uint32_t next = be32toh(layout.dbrec[0]) & 0xffffff;
    auto* entry = static_cast<char*>(layout.buf) + (next & (layout.cqe_cnt - 1)) * layout.cqe_size +
                  (layout.cqe_size == 128 ? 64 : 0);
    const auto end = Clock::now() + kDeadline;
    while (Clock::now() < end) {
        const auto op_own = *reinterpret_cast<volatile std::uint8_t*>(entry + 63);
        const bool lap = (next & layout.cqe_cnt) != 0;
        if (op_own >> 4 != MLX5_CQE_INVALID && ((op_own & 1) != 0) == lap) return op_own & 0xc;
        std::this_thread::yield();
    }
    return 0;
}

struct Case {
    bool scatter;
    bool srq;
    int cqe_size;
};

class ScatterToCqe : public testing::TestWithParam<Case> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.srq = GetParam().srq;
        options.signal_all = true;
        return options;
    }
    // libmlx5 reads both variables when objects are made.
    static void with_case(const std::function<void()>& body) {
        with_environment({{"MLX5_SCATTER_TO_CQE", GetParam().scatter ? "1" : "0"},
                          {"MLX5_CQE_SIZE", std::to_string(GetParam().cqe_size)}},
                         body);
    }
    static std::size_t limit() { return GetParam().cqe_size == 128 ? 64 : 32; }
};

TEST_P(ScatterToCqe, ReceivesOfEverySize) {
    with_case([] {
        Pair pair(options());
        for (std::size_t size = 0; size <= 70; ++size) {
            for (std::size_t sges = 1; sges <= 3; ++sges) {
                SCOPED_TRACE(testing::Message() << size << " bytes in " << sges << " SGEs");
                std::memset(pair.b.memory->data(), 0xee, 1024);
                std::vector<ibv_sge> list;
                // Not empty: an entry of no bytes means 2^31 to the device, and libmlx5 leaves such
                // entries out of a QP's receives but not out of an SRQ's.
                for (std::size_t i = 0; i + 1 < sges; ++i)
                    list.push_back(pair.b.memory->sge(i * 64, size / 4 + i + 1));
                list.push_back(pair.b.memory->sge(256, 256));
                ASSERT_EQ(pair.b.post_receive(size, list), 0);
                const auto seed = static_cast<std::uint32_t>(size * 4 + sges);
                pair.a.memory->fill(0, size, seed);
                Work work;
                work.sges = {pair.a.memory->sge(0, size)};
                ASSERT_TRUE(pair.a.run(work));
                // In an SRQ ConnectX scatters to the CQE as well; only a QP's own queue is checked.
                if (!pair.b.srq) {
                    const unsigned bits = scatter_bits_of_next(pair.b.receive_cq.get());
                    if (!GetParam().scatter || size > limit()) {
                        EXPECT_EQ(bits, 0u);
                    } else if (size > 0) {
                        EXPECT_NE(bits, 0u) << "the payload fits into the CQE";
                    }
                }
                const ibv_wc wc = pair.b.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                EXPECT_EQ(wc.byte_len, size);
                std::vector<std::uint8_t> got;
                for (const ibv_sge& sge : list) {
                    const auto* from = reinterpret_cast<const std::uint8_t*>(sge.addr);
                    const std::size_t part = std::min<std::size_t>(sge.length, size - got.size());
                    got.insert(got.end(), from, from + part);
                    for (std::size_t i = part; i < std::min<std::size_t>(part + 8, 64); ++i)
                        EXPECT_EQ(from[i], 0xee) << "a byte behind the SGE was written";
                }
                EXPECT_TRUE(has_pattern(got.data(), got.size(), seed));
            }
        }
    });
}

TEST_P(ScatterToCqe, AnswersToReadsAndAtomics) {
    with_case([] {
        Pair pair(options());
        for (std::size_t size = 0; size <= 70; ++size) {
            SCOPED_TRACE(testing::Message() << "READ of " << size << " bytes");
            const auto seed = static_cast<std::uint32_t>(size);
            pair.b.memory->fill(0, size, seed);
            std::memset(pair.a.memory->data(), 0xee, 1024);
            Work work;
            work.opcode = IBV_WR_RDMA_READ;
            work.flags = 0;  // sq_sig_all
            const std::size_t first = size / 3;
            work.sges = {pair.a.memory->sge(0, first), pair.a.memory->sge(256, size - first)};
            ASSERT_TRUE(pair.a.run(work));
            std::vector<std::uint8_t> got(pair.a.memory->data(), pair.a.memory->data() + first);
            got.insert(got.end(), pair.a.memory->data() + 256,
                       pair.a.memory->data() + 256 + (size - first));
            EXPECT_TRUE(has_pattern(got.data(), got.size(), seed));
            EXPECT_TRUE(pair.a.memory->untouched(first, 256 - first, 0xee));
            EXPECT_TRUE(pair.a.memory->untouched(256 + size - first, 64, 0xee));
        }
        const std::uint64_t start = 1000;
        std::memcpy(pair.b.memory->data(), &start, 8);
        for (std::uint64_t i = 0; i < 10; ++i) {
            Work work;
            work.opcode = i % 2 != 0 ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
            work.flags = 0;
            work.sges = {pair.a.memory->sge(512, 8)};
            work.compare_add = i % 2 != 0 ? start + i : 1;
            work.swap = start + i + 1;
            ASSERT_EQ(pair.a.post(work), 0);
            // libmlx5 and UCX differ in the order of bytes of an atomic's answer in a CQE.
            EXPECT_EQ(scatter_bits_of_next(pair.a.send_cq.get()), 0u);
            ASSERT_TRUE(succeeded(pair.a.wait_send()));
            std::uint64_t old = 0;
            std::memcpy(&old, pair.a.memory->data() + 512, 8);
            EXPECT_EQ(old, start + i);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Each, ScatterToCqe,
                         testing::Values(Case{true, false, 64}, Case{true, true, 64},
                                         Case{true, false, 128}, Case{true, true, 128},
                                         Case{false, false, 64}, Case{false, true, 128}),
                         [](const auto& info) {
                             return std::string(info.param.scatter ? "On" : "Off") +
                                    (info.param.srq ? "Srq" : "") +
                                    std::to_string(info.param.cqe_size);
                         });

}  // namespace
}  // namespace softhca::test
