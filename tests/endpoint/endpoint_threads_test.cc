// SPDX-License-Identifier: BSD-2-Clause
// Many threads on registers that the driver gave to several QPs; many threads on one QP and CQ; two
// threads in an endpoint for one. A lost update of a register's alternation would lose a doorbell,
// and the test would run into its time limit.
#define HEDDLE_CHECK_THREADS 1

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "heddle/endpoint.h"

#include "tests/endpoint/address_of.h"

namespace heddle {
namespace {

using post::Opcode;
using post::Posted;
using post::WorkRequest;

WorkRequest write_of(Endpoint& e, const ibv_sge& piece, std::uint64_t id) {
    WorkRequest work;
    work.opcode = Opcode::kWrite;
    work.flags = post::kSignaled | (id % 2 != 0 ? post::kInline : 0);
    work.sges = {&piece, 1};
    work.remote_address = address_of(e.buffer()) + 64;
    work.remote_key = e.mr()->rkey;
    work.id = id;
    return work;
}

TEST(Threads, OnRegistersThatSeveralQpsShare) {
    constexpr std::uint32_t kThreads = 12, kMessages = 2000;
    EndpointOptions options;
    options.path = Path::kDirect;
    EndpointSet set("", Category::kStatic, kThreads, options);
    const char* kernel = std::getenv("SOFTHCA_UAR");
    if (kernel != nullptr && std::string(kernel) == "static") {
        ASSERT_LT(set.usage().uuars_used.value(), kThreads + 1);
    }
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint32_t t = 0; t < kThreads; ++t) {
        set[t].connect(set[t].address());
        threads.emplace_back([&, t] {
            Endpoint& e = set[t];
            const ibv_sge piece{address_of(e.buffer()), 8, e.mr()->lkey};
            for (std::uint64_t i = 1; i <= kMessages; ++i) {
                const std::uint64_t value = std::uint64_t{t} << 32 | i;
                std::memcpy(e.buffer(), &value, sizeof value);
                if (e.post(write_of(e, piece, value)) != Posted::kOk) ++wrong;
                post::Completion completion;
                while (e.poll(&completion, 1) == 0)
                    std::this_thread::yield();
                std::uint64_t got;
                std::memcpy(&got, e.buffer() + 64, sizeof got);
                if (completion.id != value || completion.status != IBV_WC_SUCCESS || got != value)
                    ++wrong;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(wrong.load(), 0);
}

// No request is lost and none completes twice, whichever thread polls.
TEST(Threads, OnOneQpAndCq) {
    constexpr std::uint32_t kThreads = 4, kMessages = 1000;
    for (const Path path : {Path::kVerbs, Path::kDirect}) {
        EndpointOptions options;
        options.path = path;
        options.depth = 64;
        EndpointSet set("", Category::kMpiThreads, kThreads, options);
        set[0].connect(set[0].address());
        EXPECT_TRUE(set[0].qp_shared());
        std::vector<std::atomic<int>> seen(kThreads * kMessages);
        std::atomic<std::uint32_t> completed{0};
        std::atomic<int> wrong{0};
        const auto poll = [&](Endpoint& e) {
            post::Completion completions[8];
            const unsigned found = e.poll(completions, 8);
            for (unsigned i = 0; i < found; ++i) {
                if (completions[i].status != IBV_WC_SUCCESS || completions[i].id >= seen.size())
                    ++wrong;
                else
                    ++seen[completions[i].id];
                ++completed;
            }
            if (found == 0) std::this_thread::yield();
        };
        std::vector<std::thread> threads;
        for (std::uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                Endpoint& e = set[t];
                const ibv_sge piece{address_of(e.buffer()), 8, e.mr()->lkey};
                for (std::uint32_t i = 0; i < kMessages; ++i) {
                    const WorkRequest work = write_of(e, piece, t * kMessages + i);
                    Posted posted;
                    while ((posted = e.post(work)) == Posted::kFull)
                        poll(e);
                    if (posted != Posted::kOk) ++wrong;
                }
                while (completed.load() < kThreads * kMessages && wrong.load() == 0)
                    poll(e);
            });
        for (std::thread& thread : threads)
            thread.join();
        EXPECT_EQ(wrong.load(), 0);
        for (const auto& times : seen)
            ASSERT_EQ(times.load(), 1);
    }
}

TEST(MisuseDeathTest, TwoThreadsInAnEndpointForOne) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            post::SingleThreaded endpoint;
            endpoint.lock();
            std::thread([&] { endpoint.lock(); }).join();
        },
        "two threads in an endpoint for one");
}

}  // namespace
}  // namespace heddle
