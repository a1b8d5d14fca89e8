// SPDX-License-Identifier: BSD-2-Clause
// Copies of payload: all bytes, and no byte beside them, from any place to any place.
#include "common/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <vector>

namespace common {
namespace {

constexpr std::size_t kPage = 4096;

std::vector<std::byte> random_bytes(std::size_t count) {
    std::mt19937 random(7);
    std::vector<std::byte> bytes(count);
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
    return bytes;
}

TEST(CopyPayload, CopiesFromAnyPlaceToAnyPlace) {
    // Both begin with a page, so that places within a page are what the test says.
    struct alignas(kPage) Pages : std::array<std::byte, 6 * kPage> {};
    static Pages source, target, expected;
    std::ranges::copy(random_bytes(source.size()), source.begin());
    std::mt19937 random(1);
    unsigned behind = 0;
    for (int i = 0; i < 3000; ++i) {
        const std::size_t from = random() % kPage, bytes = random() % (4 * kPage);
        // Half of the targets are a little behind the source within a page.
        const std::size_t to = i % 2 ? random() % kPage : (from + random() % 40) % kPage;
        target.fill(std::byte{0xee});
        expected = target;
        if (bytes >= kRepeatedMove && is_little_behind(target.data() + to, source.data() + from))
            ++behind;
        copy_payload(target.data() + to, source.data() + from, bytes);
        std::copy_n(source.begin() + from, bytes, expected.begin() + to);
        ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
    }
    EXPECT_GT(behind, 500U) << "copies by vectors";
}

TEST(CopyPayload, CopiesOntoItself) {
    const std::vector<std::byte> source = random_bytes(6 * kPage);
    for (const std::size_t distance : {1, 16, 31, 63, 200, 4096, 4112}) {
        for (const bool up : {true, false}) {
            std::vector<std::byte> buffer = source, expected = source;
            constexpr std::size_t kBytes = 3 * kPage;
            const std::size_t from = up ? 0 : distance, to = up ? distance : 0;
            copy_payload(buffer.data() + to, buffer.data() + from, kBytes);
            std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), kBytes,
                        expected.begin() + static_cast<std::ptrdiff_t>(to));
            ASSERT_EQ(buffer, expected) << distance << (up ? " up" : " down");
        }
    }
}

TEST(CopyPayload, TakesVectorsALittleBehindTheSourceWithinAPage) {
    alignas(kPage) static std::byte memory[3 * kPage];
    const std::byte* const from = memory + 16;
    for (const std::size_t slow : {1u, 16u, 31u}) {
        EXPECT_TRUE(is_little_behind(from + slow, from)) << slow;
        EXPECT_TRUE(is_little_behind(from + kPage + slow, from)) << slow;
        EXPECT_TRUE(is_little_behind(from + slow, from + 2 * kPage)) << slow;
    }
    for (const std::size_t fast : {0u, 32u, 2048u, 4080u, 4095u})
        EXPECT_FALSE(is_little_behind(from + fast, from)) << fast;
}

}  // namespace
}  // namespace common
