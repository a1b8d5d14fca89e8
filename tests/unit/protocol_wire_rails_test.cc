// SPDX-License-Identifier: BSD-2-Clause
// What parse accepts of rails: their names, and keys of an RTS at them.
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/unit/protocol_wire_bytes.h"

namespace heddle::protocol::test {
namespace {

TEST(WireRails, KeysFollowTheSegments) {
    RtsBody body = rts(30, 2);
    body.flags = RtsBody::kRailKeys;
    const RailKeys first{{1, 2, 3}, 0}, second{{4, 5, 6}, 0};
    const Bytes two = std::move(Bytes(Kind::kRts)
                                    .add(body)
                                    .add(segment(0x1000, 10))
                                    .add(first)
                                    .add(segment(0x2000, 20))
                                    .add(second));
    two.expect_exact();
    Message out;
    ASSERT_TRUE(two.parses(out));
    EXPECT_EQ(out.segments[1].address, 0x2000u);
    EXPECT_EQ(out.segments[0].rail_keys.at[2], 3u);
    EXPECT_EQ(out.segments[1].rail_keys.at[0], 4u);
    for (const std::uint32_t flags : {RtsBody::kRailKeys | RtsBody::kByProcess, 4u}) {
        body.flags = flags;
        EXPECT_FALSE(std::move(Bytes(Kind::kRts).add(body).add(segment(0, 30))).parses());
    }
    body = rts(0, 0);
    body.flags = RtsBody::kRailKeys;
    EXPECT_FALSE(std::move(Bytes(Kind::kRts, Header::kPut).add(body)).parses());
}

TEST(WireRails, AreNamedWithTheirSpeed) {
    const auto make = [](std::uint32_t speed, std::uint32_t count, std::size_t rails,
                         const RailBody& rail) {
        Bytes it(Kind::kRails);
        it.add(speed).add(count);
        for (std::size_t i = 0; i < rails; ++i)
            it.add(rail);
        return it;
    };
    RailBody rail;
    rail.speed = 100'000;
    rail.name.srqn = 9;
    for (std::uint32_t count = 0; count <= kOtherRails; ++count)
        make(200'000, count, count, rail).expect_exact();
    Message out;
    ASSERT_TRUE(make(200'000, 2, 2, rail).parses(out));
    EXPECT_EQ(out.rails.speed, 200'000u);
    EXPECT_EQ(out.rails.count, 2u);
    EXPECT_EQ(out.rails.rails[1].name.srqn, 9u);
    EXPECT_FALSE(make(200'000, kOtherRails + 1, kOtherRails + 1, rail).parses());
    EXPECT_FALSE(make(200'000, 2, 1, rail).parses());
    EXPECT_FALSE(make(0, 1, 1, rail).parses()) << "no speed";
    RailBody slow = rail, old = rail;
    slow.speed = 0;
    EXPECT_FALSE(make(200'000, 1, 1, slow).parses());
    --old.name.version;
    EXPECT_FALSE(make(200'000, 1, 1, old).parses());
}

}  // namespace
}  // namespace heddle::protocol::test
