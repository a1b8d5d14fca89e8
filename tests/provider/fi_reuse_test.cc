// SPDX-License-Identifier: BSD-2-Clause
// Memory that is used again stays registered (memory/registration_cache.h), and programs do to it
// whatever they like between two messages: what arrives is what was there when it was sent, and
// what was received is where the program looks. Each buffer is sent three times before it is
// changed, so that its registration is one that is kept.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "tests/provider/fi_support.h"
#include "tests/support/mapped_memory.h"

extern char** environ;

namespace heddle::test {
namespace {

constexpr std::size_t kBytes = 96 << 10;  // above eager, of whole pages

constexpr auto words_of_the_program() {
    std::array<std::uint64_t, kBytes / 8> words{};
    for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = i * 0x1'0001;
    return words;
}
constexpr std::array<std::uint64_t, kBytes / 8> kReadOnly = words_of_the_program();  // .rodata

// mremap(), or, where the range has become more than one mapping (as by the software HCA), what
// realloc() does then. Nothing is left at `from`.
void move(std::byte* from, std::byte* to) {
    if (mremap(from, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to) return;
    ASSERT_EQ(errno, EFAULT);
    map(to, kBytes, MAP_FIXED);
    std::memcpy(to, from, kBytes);
    munmap(from, kBytes);
}

class Reuse : public testing::TestWithParam<const char*> {
protected:
    Reuse() { setenv("FI_HEDDLE_RNDV", GetParam(), 1); }
    void SetUp() override {
        world.emplace();
        pair.emplace(*world);
    }

    void fill(std::byte* buffer, std::size_t bytes = kBytes) {
        ++seed_;
        for (std::size_t i = 0; i < bytes; ++i)
            buffer[i] = static_cast<std::byte>((i * 131 + seed_ * 17 + (i >> 12)) & 0xff);
    }
    // From there to there, once.
    void transfer(const void* from, void* to, std::size_t bytes) {
        test::transfer(*pair, from, to, bytes, bytes, seed_);
    }
    // Sent as it is and with other contents, until it is kept.
    void use(std::byte* from, std::size_t bytes = kBytes) {
        received.resize(bytes);
        for (int i = 0; i < 3; ++i) {
            transfer(from, received.data(), bytes);
            fill(from, bytes);
        }
        transfer(from, received.data(), bytes);
    }

    std::optional<World> world;
    std::optional<Pair> pair;
    std::vector<std::byte> received;

private:
    unsigned seed_ = 0;
};

TEST_P(Reuse, OfAnAddressThatWasUnmapped) {
    std::byte* at = map_some(kBytes);
    for (int i = 0; i < 20; ++i) {
        fill(at);
        use(at);
        munmap(at, kBytes);
        ASSERT_EQ(map(at, kBytes, MAP_FIXED_NOREPLACE), at);
        transfer(at, received.data(), kBytes);  // zeros
    }
    munmap(at, kBytes);
}

TEST_P(Reuse, OfPartsThatWereUnmapped) {
    std::byte* const at = map_some(kBytes);
    for (const std::size_t hole : {std::size_t{0}, kBytes / 2, kBytes - 4096}) {
        use(at);
        munmap(at + hole, 4096);
        ASSERT_EQ(map(at + hole, 4096, MAP_FIXED_NOREPLACE), at + hole);
        transfer(at, received.data(), kBytes);
    }
    munmap(at, kBytes);
}

TEST_P(Reuse, OfMemoryThatWasMappedOver) {
    std::byte* const at = map_some(kBytes);
    for (int i = 0; i < 5; ++i) {
        use(at);
        ASSERT_EQ(map(at, kBytes, MAP_FIXED), at);
        transfer(at, received.data(), kBytes);
        fill(at);
        transfer(at, received.data(), kBytes);
    }
    munmap(at, kBytes);
}

TEST_P(Reuse, OfMemoryThatMoves) {
    std::byte* at = map_some(kBytes);
    for (int i = 0; i < 5; ++i) {
        use(at);
        std::byte* const to = map_some(kBytes);  // somewhere else
        move(at, to);
        transfer(to, received.data(), kBytes);
        ASSERT_EQ(map(at, kBytes, MAP_FIXED_NOREPLACE), at);
        transfer(at, received.data(), kBytes);
        use(to);
        munmap(to, kBytes);
    }
    munmap(at, kBytes);
}

TEST_P(Reuse, OfMemoryThatGrowsAndShrinks) {
    std::size_t bytes = kBytes;
    auto* at = static_cast<std::byte*>(std::malloc(bytes));
    for (int i = 0; i < 8; ++i) {
        fill(at, bytes);
        use(at, bytes);
        bytes = i % 3 == 2 ? kBytes : bytes * 3;
        at = static_cast<std::byte*>(std::realloc(at, bytes));
        received.resize(bytes);
        std::memset(at + bytes / 2, i, bytes / 2);
        transfer(at, received.data(), bytes);
    }
    std::free(at);
}

TEST_P(Reuse, OfMemoryThatWasThrownAway) {
    std::byte* const at = map_some(kBytes);
    for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_DONTNEED}) {
        use(at);
        // The software HCA shares pages, which cannot be freed lazily.
        if (madvise(at, kBytes, advice) != 0) {
            ASSERT_EQ(advice, MADV_FREE);
            ASSERT_EQ(errno, EINVAL);
        }
        transfer(at, received.data(), kBytes);
        fill(at);
        transfer(at, received.data(), kBytes);
    }
    munmap(at, kBytes);
}

TEST_P(Reuse, OfTheEndOfTheHeap) {
    for (int i = 0; i < 5; ++i) {
        auto* const at = static_cast<std::byte*>(sbrk(kBytes));
        ASSERT_NE(at, reinterpret_cast<std::byte*>(-1));
        fill(at);
        use(at);
        if (sbrk(0) == at + kBytes) {
            ASSERT_NE(sbrk(-static_cast<long>(kBytes)), reinterpret_cast<void*>(-1));
        }
    }
}

TEST_P(Reuse, OfWhatIsReceivedInto) {
    std::byte* const from = map_some(kBytes);
    std::byte* at = map_some(kBytes);
    for (int i = 0; i < 10; ++i) {
        for (int j = 0; j < 3; ++j) {
            fill(from);
            transfer(from, at, kBytes);
        }
        if (i % 2 != 0) {
            munmap(at, kBytes);
            ASSERT_EQ(map(at, kBytes, MAP_FIXED_NOREPLACE), at);
        } else {
            ASSERT_EQ(madvise(at, kBytes, MADV_DONTNEED), 0);
        }
    }
    munmap(at, kBytes);
    munmap(from, kBytes);
}

TEST_P(Reuse, OfMemoryThatCannotBeWatchedOrWritten) {
    received.resize(kBytes);
    for (int i = 0; i < 4; ++i)
        transfer(kReadOnly.data(), received.data(), kBytes);
    char path[] = "/tmp/heddle-reuse-XXXXXX";
    const int file = mkstemp(path);
    ASSERT_GE(file, 0);
    unlink(path);
    ASSERT_EQ(write(file, kReadOnly.data(), kBytes), static_cast<ssize_t>(kBytes));
    for (const int sharing : {MAP_PRIVATE, MAP_SHARED}) {
        void* const at = mmap(nullptr, kBytes, PROT_READ, sharing, file, 0);
        ASSERT_NE(at, MAP_FAILED);
        for (int i = 0; i < 4; ++i)
            transfer(at, received.data(), kBytes);
        munmap(at, kBytes);
    }
    close(file);
}

TEST_P(Reuse, OfTheStack) {
    std::thread([this] {
        for (int i = 0; i < 4; ++i) {
            std::byte here[kBytes];
            fill(here);
            use(here);
        }
    }).join();
    std::byte here[kBytes];
    fill(here);
    use(here);
}

// The domain ends the thread that reads of memory changes. The C library then frees cached stacks
// of threads that ended before, if there are too many. So it may unmap memory that is watched.
TEST_P(Reuse, OfStacksThatGoWithTheDomain) {
    for (int threads = 3; threads < 8; ++threads) {
        std::mutex turn;
        std::barrier all(threads);
        std::vector<std::thread> running;
        for (int i = 0; i < threads; ++i)
            running.emplace_back([&] {
                {
                    const std::scoped_lock lock(turn);
                    std::byte here[kBytes];
                    fill(here);
                    use(here);
                }
                all.arrive_and_wait();
            });
        for (auto& thread : running)
            thread.join();
        pair.reset();
        world.reset();
        SetUp();
    }
}

TEST_P(Reuse, AfterAFork) {
    std::byte* const at = map_some(kBytes);
    for (int i = 0; i < 3; ++i) {
        use(at);
        const pid_t child = fork();
        if (child == 0) {
            std::memset(at, 0x77, kBytes);
            munmap(at, kBytes);
            _exit(0);
        }
        fill(at);
        transfer(at, received.data(), kBytes);
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
        transfer(at, received.data(), kBytes);

        pid_t other = 0;
        char* const words[] = {const_cast<char*>("true"), nullptr};
        ASSERT_EQ(posix_spawnp(&other, "true", nullptr, nullptr, words, environ), 0);
        fill(at);
        transfer(at, received.data(), kBytes);
        ASSERT_EQ(waitpid(other, &status, 0), other);
    }
    munmap(at, kBytes);
}

// Its queues, its doorbell records and what it has registered stay the parent's.
TEST_P(Reuse, WhileAChildLives) {
    std::byte* const at = map_some(kBytes);
    use(at);
    int wait[2];
    ASSERT_EQ(pipe(wait), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(wait[1]);
        char byte;
        _exit(read(wait[0], &byte, 1) == 0 ? 0 : 1);
    }
    for (int i = 0; i < 5 && !HasFatalFailure(); ++i) {
        fill(at);
        transfer(at, received.data(), kBytes);
        transfer(at, received.data(), 512);
    }
    close(wait[1]);
    close(wait[0]);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    munmap(at, kBytes);
}

TEST_P(Reuse, BesideMemoryThatOthersUnmap) {
    // Buffers with a page of another thread's on each side.
    std::byte* const all = map_some(4 * (kBytes + 4096) + 4096);
    const auto buffer = [&](int i) { return all + 4096 + i * (kBytes + 4096); };
    std::atomic<bool> stop{false};
    std::thread other([&] {
        for (unsigned i = 0; !stop; ++i) {
            std::byte* const page = all + (i % 5) * (kBytes + 4096);
            if (i % 2 != 0) {
                munmap(page, 4096);
                map(page, 4096, MAP_FIXED);
            } else {
                madvise(page, 4096, MADV_DONTNEED);
            }
            std::free(std::malloc(1 << 20));
        }
    });
    for (int i = 0; i < 200 && !HasFatalFailure(); ++i) {
        fill(buffer(i % 4));
        received.resize(kBytes);
        transfer(buffer(i % 4), received.data(), kBytes);
    }
    stop = true;
    other.join();
    munmap(all, 4 * (kBytes + 4096) + 4096);
}

// All of it, in any order.
TEST_P(Reuse, Stress) {
    std::mt19937 random(1);
    std::vector<std::byte*> buffers(12);
    for (auto& buffer : buffers)
        buffer = map_some(kBytes);
    std::byte* into = map_some(kBytes);
    for (int i = 0; i < 600 && !HasFatalFailure(); ++i) {
        std::byte*& at = buffers[random() % buffers.size()];
        switch (random() % 8) {
            case 0:
                munmap(at, kBytes);
                at = map_some(kBytes);
                break;
            case 1:
                map(at, kBytes, MAP_FIXED);
                break;
            case 2:
                madvise(at, kBytes, MADV_DONTNEED);
                break;
            case 3:
                move(at, into);
                at = into;
                into = map_some(kBytes);
                break;
            case 4:
                madvise(into, kBytes, MADV_DONTNEED);
                break;
            default:
                fill(at);
                break;
        }
        const std::size_t offset = random() % 3000, bytes = kBytes - offset - random() % 3000;
        transfer(at + offset, into + offset, bytes);
    }
    for (std::byte* const buffer : buffers)
        munmap(buffer, kBytes);
    munmap(into, kBytes);
}

INSTANTIATE_TEST_SUITE_P(By, Reuse, testing::Values("rget", "rput"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test
