// SPDX-License-Identifier: BSD-2-Clause
// A program that is linked statically, as far as one can be: its allocator and its system calls for
// memory are its own (raw_memory.h), so that nothing which interposes munmap() or free() hears of
// them; heddle must know all the same what it unmaps. A program without any shared library cannot
// be: the provider is one, and the threads that it needs do not start in the second libc that
// dlopen() brings into a static program (glibc's pthread_create() crashes there, as the thread
// lists are the loader's, which has not run); nor does such a program see LD_PRELOAD, and thereby
// the software HCA. So libc and libfabric are shared, and all else is not. Each case in a process
// of its own (provider.static.*).
#include <array>
#include <cstdlib>

#include "tests/mpi/raw_memory.h"
#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::size_t kPage = 4096, kMost = std::size_t{1} << 20;
constexpr int kAfter = 8;  // uses

// Far from where the kernel puts what asks for no address: nobody takes it between two calls.
std::byte* place(std::size_t number) {
    static const auto places = [] {
        auto* at = static_cast<std::byte*>(
            raw_mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        std::array<std::byte*, 3> found{};
        for (std::byte*& each : found) {
            void* free = MAP_FAILED;
            for (int i = 0; i < 64 && free == MAP_FAILED; ++i) {
                at -= std::size_t{16} << 30;
                free = raw_mmap(at, kMost, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            }
            EXPECT_NE(free, MAP_FAILED);
            raw_munmap(free, kMost);
            each = at;
        }
        return found;
    }();
    return places[number];
}

class StaticProgram : public testing::TestWithParam<const char*> {
protected:
    StaticProgram() {
        setenv("FI_HEDDLE_RNDV", GetParam(), 1);
        setenv("FI_HEDDLE_REUSE", std::to_string(kAfter).c_str(), 1);
        world.emplace();
        pair.emplace(*world);
    }
    static void map(std::byte* at, std::size_t bytes, int how = MAP_FIXED_NOREPLACE) {
        ASSERT_EQ(
            raw_mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0),
            at);
    }
    void fill(std::byte* at, std::size_t bytes) {
        ++seed_;
        for (std::size_t i = 0; i < bytes; ++i)
            at[i] = static_cast<std::byte>(i * 31 + seed_ * 7 + (i >> 8));
    }
    void send(const std::byte* from, std::size_t bytes, std::byte* to = nullptr) {
        if (to == nullptr) to = received_.data();
        transfer(*pair, from, to, bytes, kMost, seed_);
    }
    // Until it is kept registered, or sent from where it stands.
    void use(std::byte* at, std::size_t bytes) {
        for (int i = 0; i < kAfter + 4; ++i) {
            fill(at, bytes);
            ASSERT_NO_FATAL_FAILURE(send(at, bytes));
        }
    }
    static bool zeros(const std::byte* at, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i)
            if (at[i] != std::byte{}) return false;
        return true;
    }
    void send_zeros(const std::byte* at, std::size_t bytes) {
        ASSERT_NO_FATAL_FAILURE(send(at, bytes));
        ASSERT_TRUE(zeros(received_.data(), bytes)) << "what was there before";
    }
    // All that a program does to memory, to some of that size.
    void exercise(std::byte* at, std::size_t bytes) {
        const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
        ASSERT_NO_FATAL_FAILURE(map(at, whole));
        for (int round = 0; round < 4; ++round) {
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            ASSERT_EQ(raw_munmap(at, whole), 0);
            ASSERT_NO_FATAL_FAILURE(map(at, whole));
            ASSERT_NO_FATAL_FAILURE(send_zeros(at, bytes));
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            ASSERT_NO_FATAL_FAILURE(map(at, whole, MAP_FIXED));
            ASSERT_NO_FATAL_FAILURE(send_zeros(at, bytes));
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            ASSERT_EQ(raw_madvise(at, whole, MADV_DONTNEED), 0);
            fill(at, bytes);
            ASSERT_NO_FATAL_FAILURE(send(at, bytes));
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            ASSERT_NO_FATAL_FAILURE(move(at, place(2), whole));
            ASSERT_NO_FATAL_FAILURE(send(place(2), bytes));
            ASSERT_NO_FATAL_FAILURE(map(at, whole));
            ASSERT_NO_FATAL_FAILURE(send_zeros(at, bytes));
            ASSERT_EQ(raw_munmap(place(2), whole), 0);
        }
        ASSERT_EQ(raw_munmap(at, whole), 0);
    }
    // mremap(), or what realloc() does where the range has become more than one mapping.
    static void move(std::byte* from, std::byte* to, std::size_t bytes) {
        if (raw_mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) return;
        ASSERT_EQ(errno, EFAULT);
        ASSERT_NO_FATAL_FAILURE(map(to, bytes, MAP_FIXED));
        std::memcpy(to, from, bytes);
        ASSERT_EQ(raw_munmap(from, bytes), 0);
    }
    nlohmann::json closed() {
        pair.reset();
        world.reset();
        return statistics_.read();
    }

    Statistics statistics_;
    std::optional<World> world;
    std::optional<Pair> pair;

private:
    std::vector<std::byte> received_ = std::vector<std::byte>(kMost);
    unsigned seed_ = 0;
};

TEST_P(StaticProgram, SendsSmallBuffers) {
    ASSERT_NO_FATAL_FAILURE(exercise(place(0), 3000));
    ASSERT_NO_FATAL_FAILURE(exercise(place(1) + 100 * kPage, 8000));
    const auto counts = closed();
    EXPECT_GT(counts["gathered"], 0);
    EXPECT_GT(counts["reuse_gone"], 0);
}

TEST_P(StaticProgram, SendsLargeBuffers) {
    ASSERT_NO_FATAL_FAILURE(exercise(place(0), 96 << 10));
    ASSERT_NO_FATAL_FAILURE(exercise(place(1), 1'000'000));
    const auto counts = closed();
    EXPECT_GT(counts["registration_hits"], 0);
    EXPECT_GT(counts["registration_invalidations"], 0);
}

TEST_P(StaticProgram, ReceivesInto) {
    constexpr std::size_t kBytes = 96 << 10;
    ASSERT_NO_FATAL_FAILURE(map(place(0), kMost));
    ASSERT_NO_FATAL_FAILURE(map(place(1), kMost));
    for (int i = 0; i < 10; ++i) {
        for (int use = 0; use < 4; ++use) {
            fill(place(0), kBytes);
            ASSERT_NO_FATAL_FAILURE(send(place(0), kBytes, place(1)));
        }
        ASSERT_EQ(raw_munmap(place(1), kMost), 0);
        ASSERT_NO_FATAL_FAILURE(map(place(1), kMost));
        ASSERT_TRUE(zeros(place(1), kBytes));
    }
    raw_munmap(place(0), kMost);
    raw_munmap(place(1), kMost);
    EXPECT_GT(closed()["registration_invalidations"], 0);
}

// Blocks come back at the addresses of others, and grow where they are or elsewhere.
TEST_P(StaticProgram, AllocatesByItself) {
    for (int i = 0; i < 6; ++i)
        for (const std::size_t bytes : {500u, 3000u, 8000u, 100'000u}) {
            auto* at = static_cast<std::byte*>(raw_malloc(bytes));
            ASSERT_NE(at, nullptr);
            ASSERT_NO_FATAL_FAILURE(send_zeros(at, bytes));
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            at = static_cast<std::byte*>(raw_realloc(at, 3 * bytes));
            ASSERT_NE(at, nullptr);
            ASSERT_NO_FATAL_FAILURE(send(at, bytes));
            ASSERT_NO_FATAL_FAILURE(use(at, 3 * bytes));
            at = static_cast<std::byte*>(raw_realloc(at, bytes));
            ASSERT_NE(at, nullptr);
            ASSERT_NO_FATAL_FAILURE(use(at, bytes));
            raw_free(at);
        }
    const auto counts = closed();
    EXPECT_GT(counts["gathered"], 0);
    EXPECT_GT(counts["registration_invalidations"], 0);
}

INSTANTIATE_TEST_SUITE_P(By, StaticProgram, testing::Values("rget", "rput"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test
