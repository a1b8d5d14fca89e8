// SPDX-License-Identifier: BSD-2-Clause
// Descriptors of regions with RMA, of a program that did not ask for FI_MR_LOCAL: they spare a
// copy, or a registration, where they are those of open regions that hold the buffer. All other
// values are ignored, whatever they are (src/provider/known_regions.h).
#include <sys/mman.h>

#include <optional>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::size_t kRegionBytes = 1 << 14, kMovedBytes = 512;
constexpr std::uint64_t kRemoteAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

Info hints_without_local() {
    Info hints = usual_hints();
    hints->domain_attr->mr_mode &= ~static_cast<int>(FI_MR_LOCAL);
    return hints;
}

class Descriptors : public testing::Test {
protected:
    Descriptors() {
        setenv("FI_HEDDLE_REUSE", "off", 1);  // what has no descriptor is copied
        statistics_.emplace();
        world.emplace(hints_without_local());
        pair.emplace(*world);
        exposed = registered(target.data(), target.size());
        write(buffer.data(), 8, nullptr);  // connects, inline
    }
    Opened<fid_mr> registered(const void* at, std::size_t bytes,
                              std::uint64_t access = kRemoteAccess) {
        return opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
            return fi_mr_reg(world->domain.get(), at, bytes, access, 0, 0, 0, out, nullptr);
        });
    }
    // Posts an operation, and waits for its end.
    template <class Post>
    void complete(const Post& post) {
        ASSERT_EQ(insist(pair->a.transmit.get(), post), 0);
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(pair->a.transmit.get(), entry, pair->b.receive.get()), 0);
    }
    // Writes `bytes` of `from` with this descriptor to the target, and checks that they arrive.
    void write(const std::byte* from, std::size_t bytes, void* descriptor) {
        ASSERT_LE(bytes, target.size());
        std::fill(target.begin(), target.end(), std::byte{0});
        const auto post = [&] {
            return fi_write(pair->a.ep.get(), from, bytes, descriptor, pair->to_b,
                            reinterpret_cast<std::uintptr_t>(target.data()),
                            fi_mr_key(exposed->get()), nullptr);
        };
        ASSERT_NO_FATAL_FAILURE(complete(post));
        ASSERT_EQ(std::memcmp(target.data(), from, bytes), 0);
    }
    void read(std::byte* to, std::size_t bytes, void* descriptor) {
        fill(target, 77);
        const auto post = [&] {
            return fi_read(pair->a.ep.get(), to, bytes, descriptor, pair->to_b,
                           reinterpret_cast<std::uintptr_t>(target.data()),
                           fi_mr_key(exposed->get()), nullptr);
        };
        ASSERT_NO_FATAL_FAILURE(complete(post));
        ASSERT_EQ(std::memcmp(target.data(), to, bytes), 0);
    }
    static void fill(std::vector<std::byte>& buffer, unsigned seed) {
        for (std::size_t i = 0; i < buffer.size(); ++i)
            buffer[i] = static_cast<std::byte>(i * 31 + seed);
    }
    void close_all() {
        exposed.reset();
        pair.reset();
        world.reset();
    }
    // Closes everything. What was moved from or to where it stands, and through other buffers.
    void expect_moved(unsigned direct, unsigned copied) {
        close_all();
        const nlohmann::json counts = statistics_->read();
        EXPECT_EQ(counts["rma_direct"], direct);
        EXPECT_EQ(counts["rma_copied"], copied);
    }

private:
    std::optional<Statistics> statistics_;

protected:
    std::optional<World> world;
    std::optional<Pair> pair;
    std::vector<std::byte> target = std::vector<std::byte>(kRegionBytes);
    std::vector<std::byte> buffer = [] {
        std::vector<std::byte> filled(kRegionBytes);
        fill(filled, 1);
        return filled;
    }();
    std::optional<Opened<fid_mr>> exposed;  // the target
};

TEST_F(Descriptors, OfOpenRegionsSpareTheCopy) {
    {
        const auto region = registered(buffer.data(), kRegionBytes);
        void* const descriptor = fi_mr_desc(region.get());
        write(buffer.data(), kMovedBytes, descriptor);
        write(buffer.data() + kRegionBytes - kMovedBytes, kMovedBytes, descriptor);
        read(buffer.data() + 8, kMovedBytes, descriptor);
        write(buffer.data(), kMovedBytes, nullptr);
        read(buffer.data(), kMovedBytes, nullptr);
    }
    expect_moved(3, 2);
}

TEST_F(Descriptors, OfMemoryElsewhereAreIgnored) {
    {
        // The first half alone, and a region of other memory.
        const auto half = registered(buffer.data() + 64, kRegionBytes / 2);
        std::vector<std::byte> others(kRegionBytes);
        const auto other = registered(others.data(), kRegionBytes);
        write(buffer.data() + kRegionBytes / 2, kMovedBytes, fi_mr_desc(half.get()));
        write(buffer.data() + 63, kMovedBytes, fi_mr_desc(half.get()));
        read(buffer.data() + kRegionBytes / 2 + 64 - kMovedBytes + 1, kMovedBytes,
             fi_mr_desc(half.get()));
        write(buffer.data(), kMovedBytes, fi_mr_desc(other.get()));
        write(buffer.data() + 64, kMovedBytes, fi_mr_desc(half.get()));
    }
    expect_moved(1, 4);
}

TEST_F(Descriptors, MayBeAnyValue) {
    std::uint64_t nothing[16] = {};
    void* closed;
    {
        const auto region = registered(buffer.data(), kRegionBytes);
        closed = fi_mr_desc(region.get());
    }
    for (void* const value : {reinterpret_cast<void*>(1), reinterpret_cast<void*>(~0ul), closed,
                              static_cast<void*>(nothing), static_cast<void*>(buffer.data())}) {
        write(buffer.data(), kMovedBytes, value);
        read(buffer.data(), kMovedBytes, value);
        write(buffer.data(), kRegionBytes, value);
        read(buffer.data(), kRegionBytes, value);
    }
    expect_moved(0, 10);  // those of kMovedBytes
}

// The device refuses to write to such a region.
TEST_F(Descriptors, OfReadOnlyMemoryServeWritesAlone) {
    void* const pages =
        ::mmap(nullptr, kRegionBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    auto* const memory = static_cast<std::byte*>(pages);
    for (int time = 0; time < 3; ++time) {  // also one that outlived fi_close
        const auto region = registered(memory, kRegionBytes, FI_REMOTE_READ);
        write(memory, kMovedBytes, fi_mr_desc(region.get()));
    }
    {
        const auto region = registered(memory, kRegionBytes, FI_REMOTE_READ);
        ASSERT_EQ(::mprotect(pages, kRegionBytes, PROT_READ | PROT_WRITE), 0);
        read(memory, kMovedBytes, fi_mr_desc(region.get()));
        const auto writable = registered(memory, kRegionBytes, FI_REMOTE_READ);
        read(memory, kMovedBytes, fi_mr_desc(writable.get()));
    }
    expect_moved(4, 1);
    ::munmap(pages, kRegionBytes);
}

TEST_F(Descriptors, OfManyRegions) {
    {
        std::vector<Opened<fid_mr>> regions;
        for (unsigned i = 0; i < 1000; ++i)
            regions.push_back(registered(buffer.data() + i, kMovedBytes + i % 3));
        for (unsigned i = 0; i < 1000; ++i)
            write(buffer.data() + i, kMovedBytes, fi_mr_desc(regions[i].get()));
    }
    close_all();
}

TEST_F(Descriptors, OfSeveralBuffersAreNotLookedAt) {
    {
        const auto first = registered(buffer.data(), kRegionBytes / 2);
        const auto second = registered(buffer.data() + kRegionBytes / 2, kRegionBytes / 2);
        iovec both[2] = {{buffer.data(), kMovedBytes},
                         {buffer.data() + kRegionBytes / 2, kMovedBytes}};
        // No array at all, one that is none, and one of descriptors.
        void* descriptors[2] = {fi_mr_desc(first.get()), fi_mr_desc(second.get())};
        for (void** const given : {static_cast<void**>(nullptr), reinterpret_cast<void**>(8),
                                   static_cast<void**>(descriptors)}) {
            const auto post = [&] {
                return fi_writev(pair->a.ep.get(), both, given, 2, pair->to_b,
                                 reinterpret_cast<std::uintptr_t>(target.data()),
                                 fi_mr_key(exposed->get()), nullptr);
            };
            ASSERT_NO_FATAL_FAILURE(complete(post));
            EXPECT_EQ(std::memcmp(target.data(), both[0].iov_base, kMovedBytes), 0);
            EXPECT_EQ(std::memcmp(target.data() + kMovedBytes, both[1].iov_base, kMovedBytes), 0);
            std::fill(target.begin(), target.end(), std::byte{0});
        }
    }
    expect_moved(0, 0);
}

}  // namespace
}  // namespace heddle::test
