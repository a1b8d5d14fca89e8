// SPDX-License-Identifier: BSD-2-Clause
// Small messages and RMA from buffers that are in frequent use (protocol/reuse/reuse.h), which move
// from, or to, where they stand: what arrives is what was there, whatever the program does to the
// memory between two of them. By receive queues and by rings.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"
#include "tests/support/mapped_memory.h"

namespace heddle::test {
namespace {

constexpr std::size_t kPage = 4096, kMostBytes = 8192;
constexpr int kAfter = 8;  // uses
alignas(64) constexpr char kSmallReadOnly[4096] = "what never changes";

// FI_HEDDLE_RINGS.
class SmallReuse : public testing::TestWithParam<const char*> {
protected:
    SmallReuse() {
        setenv("FI_HEDDLE_REUSE", std::to_string(kAfter).c_str(), 1);
        setenv("FI_HEDDLE_RINGS", GetParam(), 1);
        setenv("FI_HEDDLE_RING_SIZE", "8192", 1);
        open();
    }
    void open() {
        world.emplace();
        pair.emplace(*world);
    }
    nlohmann::json closed() {
        pair.reset();
        world.reset();
        return statistics_.read();
    }

    void fill(std::byte* buffer, std::size_t bytes) {
        ++seed_;
        for (std::size_t i = 0; i < bytes; ++i)
            buffer[i] = static_cast<std::byte>(i * 31 + seed_ * 7 + (i >> 8));
    }
    void transfer(const void* from, std::size_t bytes) {
        test::transfer(*pair, from, received.data(), bytes, kMostBytes, seed_);
    }
    // Until it is in frequent use, and some more.
    void use(std::byte* buffer, std::size_t bytes) {
        for (int i = 0; i < kAfter + 4; ++i) {
            fill(buffer, bytes);
            ASSERT_NO_FATAL_FAILURE(transfer(buffer, bytes));
        }
    }

    Statistics statistics_;
    std::optional<World> world;
    std::optional<Pair> pair;
    std::array<std::byte, kMostBytes> received{};
    unsigned seed_ = 0;
};

TEST_P(SmallReuse, IsSeen) {
    std::byte* const at = map_some(2 * kPage);
    ASSERT_NO_FATAL_FAILURE(transfer(at, 8));  // now they are connected
    for (const std::size_t bytes : {129u, 1000u, 4096u, 8192u})
        ASSERT_NO_FATAL_FAILURE(use(at, bytes));
    munmap(at, 2 * kPage);
    const auto counts = closed();
    EXPECT_EQ(counts["reuse_registered"], 4);
    EXPECT_EQ(counts["gathered"], 4 * 4) << "all after those that were counted";
    EXPECT_EQ(counts["reuse_frequent"], 4 * 4);
}

// Below 128 bytes it is off; what is used once or twice is copied.
TEST_P(SmallReuse, NotOfTheSmallestNorTheRare) {
    std::byte* const at = map_some(2 * kPage);
    ASSERT_NO_FATAL_FAILURE(use(at, 100));
    for (std::size_t i = 0; i < 200; ++i)
        ASSERT_NO_FATAL_FAILURE(transfer(at + i * 16, 1024));
    munmap(at, 2 * kPage);
    EXPECT_EQ(closed()["gathered"], 0);
}

TEST_P(SmallReuse, OfAnAddressThatWasUnmapped) {
    std::byte* const at = map_some(2 * kPage);
    for (int i = 0; i < 20; ++i) {
        ASSERT_NO_FATAL_FAILURE(use(at, 3000));
        munmap(at, 2 * kPage);
        ASSERT_EQ(map(at, 2 * kPage, MAP_FIXED_NOREPLACE), at);
        ASSERT_NO_FATAL_FAILURE(transfer(at, 3000));  // zeros
    }
    munmap(at, 2 * kPage);
    const auto counts = closed();
    // How often depends on when the events are read; the last may not have been looked at.
    const int registered = counts["reuse_registered"], gone = counts["reuse_gone"];
    EXPECT_GT(registered, 1);
    EXPECT_LE(gone, registered);
    EXPECT_GE(gone, registered - 1);
}

TEST_P(SmallReuse, OfMemoryThatWasMappedOver) {
    std::byte* const at = map_some(2 * kPage);
    for (int i = 0; i < 10; ++i) {
        ASSERT_NO_FATAL_FAILURE(use(at, 8192));
        ASSERT_EQ(map(at + (i % 2) * kPage, kPage, MAP_FIXED), at + (i % 2) * kPage);
        ASSERT_NO_FATAL_FAILURE(transfer(at, 8192));
    }
    munmap(at, 2 * kPage);
}

TEST_P(SmallReuse, OfMemoryThatWasThrownAway) {
    std::byte* const at = map_some(2 * kPage);
    for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_DONTNEED}) {
        ASSERT_NO_FATAL_FAILURE(use(at, 5000));
        madvise(at, 2 * kPage, advice);
        for (int i = 0; i < 3; ++i)
            ASSERT_NO_FATAL_FAILURE(transfer(at, 5000));
        ASSERT_NO_FATAL_FAILURE(use(at, 5000));
    }
    munmap(at, 2 * kPage);
}

TEST_P(SmallReuse, OfHeapThatGrowsAndShrinks) {
    auto* at = static_cast<std::byte*>(std::malloc(2000));
    for (int i = 0; i < 12; ++i) {
        ASSERT_NO_FATAL_FAILURE(use(at, 1500));
        at = static_cast<std::byte*>(std::realloc(at, (i % 3 + 1) * std::size_t{300'000}));
        ASSERT_NE(at, nullptr);
        ASSERT_NO_FATAL_FAILURE(use(at, 8000));
        at = static_cast<std::byte*>(std::realloc(at, 2000));
    }
    std::free(at);
}

TEST_P(SmallReuse, OfTheStackAndOfConstants) {
    std::array<std::byte, 2048> local;
    ASSERT_NO_FATAL_FAILURE(use(local.data(), local.size()));
    for (int i = 0; i < kAfter + 4; ++i)
        ASSERT_NO_FATAL_FAILURE(transfer(kSmallReadOnly, sizeof kSmallReadOnly));
}

// The parent's memory is the parent's, though a child writes to what it has of it.
TEST_P(SmallReuse, BesideAChildThatWrites) {
    std::byte* const at = map_some(2 * kPage);
    ASSERT_NO_FATAL_FAILURE(use(at, 4000));
    for (int i = 0; i < 5; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            std::memset(at, 0x55, 4000);
            _exit(0);
        }
        fill(at, 4000);
        ASSERT_NO_FATAL_FAILURE(transfer(at, 4000));
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_NO_FATAL_FAILURE(use(at, 4000));
    }
    munmap(at, 2 * kPage);
}

// More buffers than stay registered at once.
TEST_P(SmallReuse, OfManyBuffers) {
    constexpr std::size_t kBuffers = 300;
    std::byte* const at = map_some(kBuffers * kPage);
    for (int round = 0; round < kAfter + 4; ++round)
        for (std::size_t i = 0; i < kBuffers; ++i) {
            fill(at + i * kPage, 600);
            ASSERT_NO_FATAL_FAILURE(transfer(at + i * kPage, 600));
        }
    munmap(at, kBuffers * kPage);
    EXPECT_EQ(closed()["reuse_registered"], kBuffers);
}

TEST_P(SmallReuse, PutAndGet) {
    std::byte* const at = map_some(2 * kPage);
    std::byte* const there = map_some(2 * kPage);
    fid_mr* mr = nullptr;
    ASSERT_EQ(fi_mr_reg(world->domain.get(), there, 2 * kPage, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                        0, 0, &mr, nullptr),
              0);
    const auto target = reinterpret_cast<std::uint64_t>(there);
    fid_cq* const cq = pair->a.transmit.get();
    fi_cq_tagged_entry entry;
    // What is here, or there, is new each time; before the last it is other memory at the same
    // place.
    const auto repeat = [&](std::byte* source, std::size_t bytes, const auto& move) {
        for (int i = 0; i < kAfter + 4; ++i) {
            fill(source, bytes);
            ASSERT_EQ(insist(cq, move), 0);
            ASSERT_EQ(next(cq, entry, pair->b.receive.get()), 0);
            ASSERT_EQ(std::memcmp(at, there, bytes), 0) << bytes;
            if (i == kAfter + 2) {
                munmap(at, 2 * kPage);
                ASSERT_EQ(map(at, 2 * kPage, MAP_FIXED_NOREPLACE), at);
            }
        }
    };
    for (const std::size_t bytes : {200u, 4096u, 8000u}) {
        ASSERT_NO_FATAL_FAILURE(repeat(at, bytes, [&] {
            return fi_write(pair->a.ep.get(), at, bytes, nullptr, pair->to_b, target, fi_mr_key(mr),
                            nullptr);
        }));
        ASSERT_NO_FATAL_FAILURE(repeat(there, bytes, [&] {
            return fi_read(pair->a.ep.get(), at, bytes, nullptr, pair->to_b, target, fi_mr_key(mr),
                           nullptr);
        }));
    }
    EXPECT_EQ(fi_close(&mr->fid), 0);
    munmap(at, 2 * kPage);
    munmap(there, 2 * kPage);
    const auto counts = closed();
    EXPECT_GT(counts["rma_direct"], 0);
    EXPECT_GE(counts["rma_copied"], 2 * 3 * kAfter);
}

// Both take their notes from one pool: a send must not finish the read that had its note before.
TEST_P(SmallReuse, SendsAfterReadsWriteNothing) {
    constexpr std::size_t kReads = 50, kBytes = 64;
    std::byte* const at = map_some(kPage);
    std::byte* const there = map_some(kPage);
    fid_mr* mr = nullptr;
    ASSERT_EQ(fi_mr_reg(world->domain.get(), there, kPage, FI_REMOTE_READ, 0, 0, 0, &mr, nullptr),
              0);
    fill(there, kPage);
    fid_cq* const cq = pair->a.transmit.get();
    std::vector<std::byte> into(kReads * kBytes);
    for (std::size_t i = 0; i < kReads; ++i) {
        const auto read = [&] {
            return fi_read(pair->a.ep.get(), &into[i * kBytes], kBytes, nullptr, pair->to_b,
                           reinterpret_cast<std::uint64_t>(there), fi_mr_key(mr), nullptr);
        };
        fi_cq_tagged_entry entry;
        ASSERT_EQ(insist(cq, read), 0);
        ASSERT_EQ(next(cq, entry, pair->b.receive.get()), 0);
        ASSERT_EQ(std::memcmp(&into[i * kBytes], there, kBytes), 0);
    }
    const std::vector<std::byte> mine(into.size(), std::byte{0x5a});
    into = mine;
    ASSERT_NO_FATAL_FAILURE(use(at, 1024));
    EXPECT_EQ(into, mine);
    EXPECT_EQ(fi_close(&mr->fid), 0);
    munmap(at, kPage);
    munmap(there, kPage);
    EXPECT_GT(closed()["gathered"], 0);
}

// Another thread maps and unmaps what lies beside.
TEST_P(SmallReuse, BesideMemoryThatOthersUnmap) {
    std::byte* const at = map_some(4 * kPage);
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) {
            munmap(at + 2 * kPage, 2 * kPage);
            map(at + 2 * kPage, 2 * kPage, MAP_FIXED);
        }
    });
    for (int i = 0; i < 60 && !HasFatalFailure(); ++i) {
        fill(at + kPage, kPage);
        transfer(at + kPage + static_cast<std::size_t>(i % 3) * 8, 4000);
    }
    stop = true;
    other.join();
    munmap(at, 4 * kPage);
}

// Two pages may stay registered, and more are used in turn.
TEST_P(SmallReuse, WithRoomForFew) {
    pair.reset();
    world.reset();
    setenv("FI_HEDDLE_MR_CACHE", "8192", 1);
    open();
    constexpr std::size_t kBuffers = 6;
    std::byte* const at = map_some(kBuffers * 2 * kPage);
    for (int round = 0; round < 3; ++round)
        for (std::size_t i = 0; i < kBuffers; ++i)
            ASSERT_NO_FATAL_FAILURE(use(at + i * 2 * kPage, 1000 + i));
    for (int i = 0; i < 200; ++i)
        for (std::size_t n = 0; n < kBuffers; ++n)
            ASSERT_NO_FATAL_FAILURE(transfer(at + n * 2 * kPage, 1000 + n));
    munmap(at, kBuffers * 2 * kPage);
}

// Each thread in a domain of its own, all from the same bytes and from some that overlap, while
// another maps over what lies beside.
TEST_P(SmallReuse, OfBuffersThatThreadsShare) {
    constexpr std::size_t kThreads = 3;
    std::byte* const at = map_some(4 * kPage);
    fill(at + kPage, 2 * kPage);
    std::vector<std::unique_ptr<World>> worlds;
    std::vector<std::unique_ptr<Pair>> pairs;
    for (std::size_t i = 0; i < kThreads; ++i) {
        worlds.push_back(std::make_unique<World>());
        pairs.push_back(std::make_unique<Pair>(*worlds.back()));
    }
    std::atomic<bool> stop{false};
    std::thread other([&] {
        for (std::size_t i = 0; !stop; ++i)
            map(at + i % 2 * 3 * kPage, kPage, MAP_FIXED);
    });
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            Pair& own = *pairs[i];
            std::vector<std::byte> into(kMostBytes);
            for (std::size_t n = 0; n < 300; ++n) {
                // the same of all threads, and one of each
                const std::byte* const from = at + kPage + (n % 2 != 0 ? 0 : 100 * i);
                const std::size_t bytes = 2000 + (n % 4 < 2 ? 0 : 3000);
                test::transfer(own, from, into.data(), bytes, kMostBytes, n);
                if (testing::Test::HasFatalFailure()) return;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    stop = true;
    other.join();
    pairs.clear();
    worlds.clear();
    munmap(at, 4 * kPage);
}

// All of it at random. HEDDLE_TEST_SECONDS: how long.
TEST_P(SmallReuse, Stress) {
    const char* const asked = std::getenv("HEDDLE_TEST_SECONDS");
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(asked != nullptr ? std::atoi(asked) : 2);
    std::mt19937 random(7);
    const auto below = [&](std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    constexpr std::size_t kPlaces = 12, kPages = 4;
    std::byte* const all = map_some(kPlaces * kPages * kPage);
    std::atomic<bool> stop{false};
    std::byte* const beside = map_some(8 * kPage);
    std::thread other([&] {
        for (std::size_t i = 0; !stop; ++i) {
            map(beside + i % 8 * kPage, kPage, MAP_FIXED);
            std::this_thread::yield();
        }
    });
    while (std::chrono::steady_clock::now() < end && !HasFatalFailure()) {
        std::byte* const place = all + below(kPlaces) * kPages * kPage;
        const std::size_t offset = below(3) * 700, bytes = 129 + below(8) * 1000;
        const std::size_t times = 1 + below(2 * kAfter);
        for (std::size_t i = 0; i < times && !HasFatalFailure(); ++i) {
            if (below(2) != 0) fill(place + offset, bytes);
            transfer(place + offset, bytes);
        }
        std::byte* const page = place + below(kPages) * kPage;
        switch (below(6)) {
            case 0:
                munmap(page, kPage);
                map(page, kPage, MAP_FIXED_NOREPLACE);
                break;
            case 1:
                map(page, kPage, MAP_FIXED);
                break;
            case 2:
                madvise(page, kPage, MADV_DONTNEED);
                break;
            case 3:
                if (const pid_t child = fork(); child == 0) {
                    std::memset(place, 0x77, kPages * kPage);
                    _exit(0);
                } else {
                    fill(place, kPages * kPage);
                    waitpid(child, nullptr, 0);
                }
                break;
            default:
                break;
        }
    }
    stop = true;
    other.join();
    munmap(beside, 8 * kPage);
    munmap(all, kPlaces * kPages * kPage);
}

INSTANTIATE_TEST_SUITE_P(By, SmallReuse, testing::Values("0", "1"),
                         [](const auto& test) { return *test.param == '0' ? "send" : "ring"; });

}  // namespace
}  // namespace heddle::test
