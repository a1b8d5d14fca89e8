// SPDX-License-Identifier: BSD-2-Clause
// Threads on shared and on own objects: posting to one QP, polling one CQ, QPs that share a uUAR,
// objects made and destroyed beside traffic, and control calls beside posts. Contents and order are
// checked. Short enough for ThreadSanitizer.

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kRounds = 300;
#else
constexpr std::uint32_t kRounds = 3000;
#endif

class Team {
public:
    template <typename F>
    void start(F body) {
        threads_.emplace_back([body] {
            try {
                body();
            } catch (const std::exception& error) {
                ADD_FAILURE() << error.what();
            }
        });
    }
    ~Team() {
        for (auto& thread : threads_)
            thread.join();
    }

private:
    std::vector<std::thread> threads_;
};

// Each thread has its own pair of QPs, CQs and memory, all in one context.
TEST(Threads, OnQueuePairsOfTheirOwn) {
    Endpoint base;
    Team team;
    for (std::uint32_t t = 0; t < 4; ++t) {
        team.start([&base, t] {
            Endpoint a({}, &base);
            Endpoint b({}, &base);
            a.connect(b.address());
            b.connect(a.address());
            for (std::uint32_t i = 0; i < kRounds; ++i) {
                const std::uint32_t seed = i * 16 + t;
                const std::size_t size = 1 + i % 2000;
                a.memory->fill(0, size, seed);
                Work work;
                work.sges = {a.memory->sge(0, size)};
                ASSERT_EQ(b.post_receive(i, {b.memory->sge(0, 4096)}), 0);
                ASSERT_TRUE(a.run(work));
                const ibv_wc wc = b.wait_receive();
                ASSERT_TRUE(succeeded(wc));
                ASSERT_EQ(wc.wr_id, i);
                ASSERT_TRUE(b.memory->holds(0, size, seed));
            }
        });
    }
}

// Twenty QPs of one context, so that several share a uUAR, posted by four threads at once.
TEST(Threads, OnQueuePairsThatShareDoorbells) {
    Endpoint base;
    std::vector<std::unique_ptr<Endpoint>> near;
    std::vector<std::unique_ptr<Endpoint>> far;
    for (int i = 0; i < 20; ++i) {
        near.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
        far.push_back(std::make_unique<Endpoint>(Endpoint::Options{}, &base));
        near.back()->connect(far.back()->address());
        far.back()->connect(near.back()->address());
    }
    Team team;
    for (std::size_t t = 0; t < 4; ++t) {
        team.start([&, t] {
            for (std::uint32_t i = 0; i < kRounds; ++i) {
                const std::size_t pick = (i * 4 + t) % 20;
                Endpoint& e = *near[pick];
                e.memory->fill(0, 100, i);
                Work work;
                work.opcode = IBV_WR_RDMA_WRITE;
                if (i % 2 != 0) work.flags |= IBV_SEND_INLINE;
                work.sges = {e.memory->sge(0, i % 2 != 0 ? 60 : 100)};
                ASSERT_TRUE(e.run(work));
                ASSERT_TRUE(far[pick]->memory->holds(0, i % 2 != 0 ? 60 : 100, i));
            }
        });
    }
}

// Four threads post to one QP; one polls. Every message arrives once; each thread's in its order.
TEST(Threads, PostToOneQueuePair) {
    Endpoint::Options options;
    options.send_depth = 64;
    options.receive_depth = 256;
    options.cq_depth = 512;
    Pair pair(options);
    constexpr std::uint32_t kThreads = 4;
    const auto post_receive = [&](std::uint64_t slot) {
        return pair.b.post_receive(slot, {pair.b.memory->sge(slot * 64, 64)});
    };
    for (std::uint64_t slot = 0; slot < 200; ++slot)
        ASSERT_EQ(post_receive(slot), 0);
    Team team;
    std::atomic<std::uint32_t> sent{0};
    for (std::uint32_t t = 0; t < kThreads; ++t) {
        team.start([&, t] {
            for (std::uint32_t i = 0; i < kRounds; ++i) {
                std::uint32_t words[2] = {t, i};
                Work work;
                work.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
                work.sges = {{reinterpret_cast<std::uint64_t>(words), 8, 0}};
                const auto end = Clock::now() + kDeadline;
                while (pair.a.post(work) != 0) {  // the queue is full
                    ASSERT_LT(Clock::now(), end);
                    std::this_thread::yield();
                }
                ++sent;
            }
        });
    }
    team.start([&] {
        for (std::uint32_t i = 0; i < kThreads * kRounds; ++i)
            ASSERT_TRUE(succeeded(pair.a.wait_send()));
    });
    std::uint32_t next[kThreads] = {};
    for (std::uint32_t i = 0; i < kThreads * kRounds; ++i) {
        const ibv_wc wc = pair.b.wait_receive();
        ASSERT_TRUE(succeeded(wc));
        std::uint32_t words[2];
        std::memcpy(words, pair.b.memory->data() + wc.wr_id * 64, sizeof words);
        ASSERT_LT(words[0], kThreads);
        ASSERT_EQ(words[1], next[words[0]]++) << "from thread " << words[0];
        ASSERT_EQ(post_receive(wc.wr_id), 0);
    }
}

// Several threads poll one CQ: each completion is seen by exactly one.
TEST(Threads, PollOneCompletionQueue) {
    Pair pair;
    constexpr std::uint32_t kThreads = 3;
    std::vector<std::atomic<int>> seen(kRounds);
    std::atomic<std::uint32_t> total{0};
    Team team;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
        team.start([&] {
            const auto end = Clock::now() + kDeadline;
            while (total < kRounds && Clock::now() < end) {
                ibv_wc wc[4];
                const int count = ibv_poll_cq(pair.a.send_cq.get(), 4, wc);
                for (int i = 0; i < count; ++i) {
                    EXPECT_TRUE(succeeded(wc[i]));
                    ++seen[wc[i].wr_id];
                    ++total;
                }
                if (count == 0) std::this_thread::yield();
            }
        });
    }
    for (std::uint32_t i = 0; i < kRounds; ++i) {
        Work work;
        work.id = i;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.sges = {pair.a.memory->sge(0, 32)};
        const auto end = Clock::now() + kDeadline;
        while (pair.a.post(work) != 0) {
            ASSERT_LT(Clock::now(), end);
            std::this_thread::yield();
        }
    }
    while (total < kRounds) {
        std::this_thread::yield();
        if (testing::Test::HasFailure()) break;
    }
    for (std::uint32_t i = 0; i < kRounds; ++i)
        EXPECT_EQ(seen[i], 1) << "completion " << i;
}

// Contexts, regions, CQs and QPs come and go in other threads while one has traffic.
TEST(Threads, MakeAndDestroyBesideTraffic) {
    Pair pair;
    std::atomic<bool> stop{false};
    {
        Team team;
        for (int t = 0; t < 2; ++t) {
            team.start([&] {
                while (!stop) {
                    Endpoint::Options options;
                    options.srq = true;
                    options.events = true;
                    Pair own(options);
                    own.a.memory->fill(0, 100, 1);
                    Work work;
                    work.opcode = IBV_WR_RDMA_WRITE;
                    work.sges = {own.a.memory->sge(0, 100)};
                    ASSERT_TRUE(own.a.run(work));
                    ASSERT_TRUE(own.b.memory->holds(0, 100, 1));
                }
            });
        }
        team.start([&] {
            while (!stop) {
                const Memory memory(pair.a.pd.get(), 1 << 18);
                const auto cq = create_cq(pair.a.context.get(), 100);
            }
        });
        for (std::uint32_t i = 0; i < kRounds; ++i) {
            pair.a.memory->fill(0, 1000, i);
            Work work;
            work.opcode = IBV_WR_RDMA_WRITE;
            work.sges = {pair.a.memory->sge(0, 1000)};
            EXPECT_TRUE(pair.a.run(work));
            EXPECT_TRUE(pair.b.memory->holds(0, 1000, i));
            if (testing::Test::HasFailure()) break;
        }
        stop = true;
    }
}

// The program stores to memory while it is being registered and deregistered: no store is lost.
TEST(Threads, StoresDuringRegistrationAreKept) {
    Endpoint e;
    constexpr std::size_t kPages = 512;
    auto* words = static_cast<std::uint64_t*>(std::aligned_alloc(4096, kPages * 4096));
    std::memset(words, 0, kPages * 4096);
    std::vector<std::uint64_t> shadow(kPages, 0);
    std::atomic<bool> stop{false};
    {
        Team team;
        team.start([&] {
            for (std::uint64_t i = 0; !stop; ++i) {
                const std::size_t page = (i * 2654435761u) % kPages;
                auto& word = *reinterpret_cast<volatile std::uint64_t*>(words + page * 512 + 1);
                word = word + 1;
                ++shadow[page];
            }
        });
        for (int round = 0; round < 60; ++round) {
            const Owned<ibv_mr> mr(ibv_reg_mr(e.pd.get(), words, kPages * 4096, kAllAccess));
            EXPECT_TRUE(mr);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        stop = true;
    }
    std::uint64_t lost = 0;
    for (std::size_t page = 0; page < kPages; ++page)
        lost += shadow[page] - words[page * 512 + 1];
    EXPECT_EQ(lost, 0u) << "stores were lost while pages were moved";
    std::free(words);
}

}  // namespace
}  // namespace softhca::test
