// SPDX-License-Identifier: BSD-2-Clause
// A reader gets all values that a process has published, no half-written ones, and nothing beyond
// the segment.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <thread>

#include "provider/live_format.h"

namespace heddle::provider {
namespace {

constexpr std::uint32_t kSlots = 4;

class LiveSegment : public ::testing::Test {
protected:
    LiveSegment() : bytes(live_bytes(kSlots)), memory(new(std::align_val_t{64}) std::byte[bytes]) {
        std::memset(memory, 0, bytes);
        header = new (memory) LiveHeader;
        header->slots = kSlots;
        header->pid = 42;
        std::memcpy(header->device, "mlx5_7", 7);
    }
    ~LiveSegment() override { operator delete[](memory, std::align_val_t{64}); }
    LiveSlot& slot(std::uint32_t i) { return reinterpret_cast<LiveSlot*>(header + 1)[i]; }
    std::optional<LiveProcess> read(std::size_t size) const { return read_live({memory, size}); }
    std::optional<LiveProcess> read() const { return read(bytes); }

    const std::size_t bytes;
    std::byte* const memory;
    LiveHeader* header;
};

EndpointValues all(std::uint64_t value) {
    EndpointValues values;
    values.fill(value);
    return values;
}

TEST_F(LiveSegment, IsReadAsWritten) {
    slot(2).endpoint = 9;
    write_live(slot(2).block, all(5), 77);
    ProcessValues process;
    process.fill(3);
    write_live(header->process, process, 66);
    const auto seen = read();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->pid, 42);
    EXPECT_EQ(seen->device, "mlx5_7");
    EXPECT_EQ(seen->values, process);
    EXPECT_EQ(seen->written_ns, 66u);
    ASSERT_EQ(seen->endpoints.size(), 1u);
    EXPECT_EQ(seen->endpoints[0].slot, 2u);
    EXPECT_EQ(seen->endpoints[0].number, 9u);
    EXPECT_EQ(seen->endpoints[0].written_ns, 77u);
    EXPECT_EQ(seen->endpoints[0].values, all(5));
}

TEST_F(LiveSegment, LeavesOutWhatIsBeingWritten) {
    write_live(slot(0).block, all(1), 1);
    write_live(slot(1).block, all(1), 1);
    slot(1).block.sequence.fetch_or(1);
    const auto seen = read();
    ASSERT_TRUE(seen);
    ASSERT_EQ(seen->endpoints.size(), 1u);
    EXPECT_EQ(seen->endpoints[0].slot, 0u);
}

TEST_F(LiveSegment, IsNoneIfItIsAnothersOrTooShort) {
    EXPECT_FALSE(read(0));
    EXPECT_FALSE(read(sizeof(LiveHeader) - 1));
    EXPECT_FALSE(read(bytes - 1));
    EXPECT_TRUE(read());
    header->slots = kSlots + 1;
    EXPECT_FALSE(read());
    header->slots = ~0u;
    EXPECT_FALSE(read());
    header->slots = kSlots;
    header->version = kLiveVersion + 1;
    EXPECT_FALSE(read());
    header->version = kLiveVersion;
    for (std::uint32_t* const count : {&header->endpoint_values, &header->process_values}) {
        ++*count;
        EXPECT_FALSE(read());
        --*count;
    }
    EXPECT_TRUE(read());
}

TEST_F(LiveSegment, HasTextThatATerminalMayShow) {
    std::memset(header->device, 'x', sizeof header->device);  // without an end
    std::memcpy(header->rank, "\x1b[2J", 5);
    const auto seen = read();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->device, std::string(sizeof header->device, 'x'));
    EXPECT_EQ(seen->rank, "?[2J");
}

TEST_F(LiveSegment, IsNeverReadHalf) {
    std::atomic<bool> done{false};
    std::thread writer([&] {
        for (std::uint64_t i = 1; !done; ++i)
            write_live(slot(0).block, all(i), i);
    });
    std::uint64_t last = 0, seen_some = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (seen_some < 10'000 && std::chrono::steady_clock::now() < end) {
        const auto seen = read();
        ASSERT_TRUE(seen);
        for (const LiveEndpoint& endpoint : seen->endpoints) {
            ++seen_some;
            ASSERT_EQ(endpoint.values, all(endpoint.written_ns));
            ASSERT_GE(endpoint.written_ns, last);
            last = endpoint.written_ns;
        }
    }
    done = true;
    writer.join();
    EXPECT_EQ(seen_some, 10'000u);
}

}  // namespace
}  // namespace heddle::provider
