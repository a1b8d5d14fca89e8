// SPDX-License-Identifier: BSD-2-Clause
// Memory that is registered again and again: the registration outlives fi_close, and never the
// memory (protocol/transport/kept_regions.h).
#include <sys/mman.h>

#include <random>

#include "tests/provider/fi_transfers.h"

namespace heddle::test {
namespace {

constexpr std::size_t kBytes = 1 << 16;

class KeptRegions : public Transfers {
protected:
    KeptRegions() : memory(map(nullptr)) {}
    ~KeptRegions() override { ::munmap(memory, kBytes); }
    static std::byte* map(void* at) {
        void* const pages =
            ::mmap(at, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
        EXPECT_NE(pages, MAP_FAILED);
        return static_cast<std::byte*>(pages);
    }
    Opened<fid_mr> open(void* at, std::size_t bytes = kBytes,
                        std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE) {
        return opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
            return fi_mr_reg(world.domain.get(), at, bytes, access, 0, 0, 0, out, nullptr);
        });
    }
    // The key of a registration that is made and closed.
    std::uint64_t key_of_one(void* at, std::size_t bytes = kBytes,
                             std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE) {
        return fi_mr_key(open(at, bytes, access).get());
    }
    // The result of a write by that key: 0, or an error.
    int write_there(std::uint64_t key, void* at, std::uint64_t value) {
        must([&] {
            return fi_write(a, &value, sizeof value, nullptr, pair.to_b,
                            reinterpret_cast<std::uintptr_t>(at), key, &context);
        });
        return next(sent, entry, received);
    }
    std::uint64_t value_there(const std::byte* at) {
        std::uint64_t value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }

    std::byte* memory;
};

TEST_F(KeptRegions, AreKeptFromTheSecondTimeOn) {
    key_of_one(memory);
    const std::uint64_t second = key_of_one(memory);
    for (int time = 0; time < 10; ++time) {
        const auto region = open(memory);
        ASSERT_EQ(fi_mr_key(region.get()), second);
        ASSERT_EQ(write_there(second, memory + 8, 1000 + time), 0);
        EXPECT_EQ(value_there(memory + 8), 1000U + time);
    }
}

// What is registered once cannot be written to when it is closed.
TEST_F(KeptRegions, AreNoneOfWhatIsRegisteredOnce) {
    const std::uint64_t key = key_of_one(memory);
    EXPECT_NE(write_there(key, memory, 1), 0);
    EXPECT_EQ(value_there(memory), 0U);
}

TEST_F(KeptRegions, BelongToTheirBytesAndAccessAlone) {
    for (int time = 0; time < 3; ++time)
        key_of_one(memory);
    const std::uint64_t key = key_of_one(memory);
    EXPECT_NE(key_of_one(memory, kBytes - 8), key);
    EXPECT_NE(key_of_one(memory + 8, kBytes - 8), key);
    EXPECT_NE(key_of_one(memory, kBytes, FI_REMOTE_READ), key);
    // Two at once are two.
    const auto one = open(memory), other = open(memory);
    EXPECT_NE(fi_mr_key(one.get()), fi_mr_key(other.get()));
}

TEST_F(KeptRegions, EndWithTheirMemory) {
    for (int time = 0; time < 3; ++time)
        key_of_one(memory);
    for (int time = 0; time < 10; ++time) {
        // New pages at the same address, at times while the registration is open.
        {
            const auto region = open(memory);
            if (time % 2 == 1) map(memory);
        }
        if (time % 2 == 0) map(memory);
        const auto region = open(memory);
        ASSERT_EQ(write_there(fi_mr_key(region.get()), memory + 64, 7 + time), 0);
        EXPECT_EQ(value_there(memory + 64), 7U + time) << "the pages before these";
    }
}

// The same by madvise, of a part of it.
TEST_F(KeptRegions, EndWhenPagesAreThrownAway) {
    for (int time = 0; time < 3; ++time)
        key_of_one(memory);
    for (int time = 0; time < 10; ++time) {
        std::memset(memory, 1, kBytes);
        ASSERT_EQ(::madvise(memory + kBytes / 2, kBytes / 2, MADV_DONTNEED), 0);
        std::byte* const at = memory + kBytes / 2 + 64;
        EXPECT_EQ(value_there(at), 0U);
        const auto region = open(memory);
        ASSERT_EQ(write_there(fi_mr_key(region.get()), at, 7 + time), 0);
        EXPECT_EQ(value_there(at), 7U + time);
    }
}

// More memory than is kept, registered, written to, mapped anew and closed at random.
TEST_F(KeptRegions, AreRightAtRandom) {
    constexpr std::size_t kAreas = 100;
    std::mt19937 random(20261127);
    std::vector<std::byte*> areas(kAreas);
    std::vector<Opened<fid_mr>> regions(kAreas);
    for (std::byte*& area : areas)
        area = map(nullptr);
    std::uint64_t value = 1;
    for (int step = 0; step < 6000; ++step) {
        // Some are used much more often than others.
        const std::size_t which = random() % 4 == 0 ? random() % kAreas : random() % 8;
        switch (random() % 8) {
            case 0:
                if (regions[which]) break;
                map(areas[which]);
                break;
            case 1:
                ::madvise(areas[which], kBytes / 4, MADV_DONTNEED);
                if (regions[which]) regions[which] = open(areas[which]);
                break;
            case 2:
            case 3:
            case 4:
                regions[which] = {};
                break;
            default:
                if (!regions[which]) regions[which] = open(areas[which]);
                std::byte* const at = areas[which] + random() % (kBytes / 8) * 8;
                ASSERT_EQ(write_there(fi_mr_key(regions[which].get()), at, ++value), 0) << step;
                ASSERT_EQ(value_there(at), value) << step;
        }
    }
    regions.clear();
    for (std::byte* const area : areas)
        ::munmap(area, kBytes);
}

}  // namespace
}  // namespace heddle::test
