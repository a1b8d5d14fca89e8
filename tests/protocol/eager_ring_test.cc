// SPDX-License-Identifier: BSD-2-Clause
// A ring by itself: bytes that a peer wrote, whatever they are.
#include "protocol/ring/eager_ring.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/softhca/verbs_fixture.h"

namespace heddle::protocol {
namespace {

using softhca::test::check;
using softhca::test::Owned;

class EagerRing : public testing::Test {
protected:
    using Next = ReceiveRing::Next;
    static constexpr std::uint32_t kSlots = 4;
    static constexpr std::size_t kMessage = 96;

    // As a peer's RDMA write would.
    void write(std::uint64_t at, const RingTail& tail, std::size_t bytes, std::byte fill) {
        auto* to = reinterpret_cast<std::byte*>(at);
        std::fill_n(to, bytes, fill);
        std::memcpy(to + bytes, &tail, sizeof tail);
    }
    void send(std::size_t bytes, std::byte fill) {
        ASSERT_TRUE(sender_.takes(bytes));
        write(sender_.address(bytes), sender_.tail(bytes), bytes, fill);
        sender_.count_sent();
    }
    RingTail* tail_of(std::uint32_t slot) {
        const RingBody at = ring_.offer();
        return reinterpret_cast<RingTail*>(at.address + (slot + 1) * at.slot_bytes) - 1;
    }

    Owned<ibv_context> context_ = softhca::test::open_device();
    Owned<ibv_pd> pd_{check(ibv_alloc_pd(context_.get()), "ibv_alloc_pd")};
    ReceiveRing ring_{pd_.get(), kSlots, kMessage};
    SendRing sender_{ring_.offer()};
    ReceiveRing::Found found_;
};

TEST_F(EagerRing, RoundAndRound) {
    EXPECT_EQ(ring_.next(found_), Next::kNothing);
    for (int i = 0; i < 50; ++i) {
        const std::size_t bytes = sizeof(Header) + static_cast<std::size_t>(i * 7 % 81);
        ASSERT_NO_FATAL_FAILURE(send(bytes, static_cast<std::byte>(i)));
        ASSERT_EQ(ring_.next(found_), Next::kMessage) << i;
        ASSERT_EQ(found_.bytes.size(), bytes);
        EXPECT_FALSE(found_.has_immediate);
        for (const std::byte each : found_.bytes)
            ASSERT_EQ(each, static_cast<std::byte>(i));
        ring_.pop();
        ASSERT_EQ(ring_.next(found_), Next::kNothing) << i;
        if (ring_.has_news()) {
            ASSERT_TRUE(sender_.took(ring_.news().taken));
        }
    }
}

TEST_F(EagerRing, TakesNoMoreThanItHas) {
    for (std::uint32_t i = 0; i < kSlots; ++i)
        ASSERT_NO_FATAL_FAILURE(send(sizeof(Header), std::byte{1}));
    EXPECT_FALSE(sender_.takes(sizeof(Header)));
    EXPECT_FALSE(sender_.took(kSlots + 1)) << "more than were sent";
    EXPECT_FALSE(sender_.took(~0u));
    ring_.pop();
    EXPECT_FALSE(ring_.has_news());
    ring_.pop();
    ASSERT_TRUE(ring_.has_news());
    ASSERT_TRUE(sender_.took(ring_.news().taken));
    EXPECT_TRUE(sender_.takes(sizeof(Header)));
    EXPECT_FALSE(sender_.takes(ring_.offer().slot_bytes - sizeof(RingTail) + 1));
    EXPECT_FALSE(sender_.took(1)) << "fewer than before";
}

TEST_F(EagerRing, LengthsThatCannotBe) {
    const auto most = ring_.offer().slot_bytes - static_cast<std::uint32_t>(sizeof(RingTail));
    for (const std::uint32_t bytes : {0u, 1u, 15u, most + 1, 1u << 20, ~0u}) {
        *tail_of(0) = {0, 0, bytes, 1};
        EXPECT_EQ(ring_.next(found_), Next::kBroken) << bytes;
    }
    *tail_of(0) = {0, 0, most, 1};
    EXPECT_EQ(ring_.next(found_), Next::kMessage);
    EXPECT_EQ(found_.bytes.size(), most);
}

TEST_F(EagerRing, RoundsThatAreNotNow) {
    for (const std::uint32_t round : {0u, 2u, 3u, ~0u}) {
        *tail_of(0) = {0, 0, sizeof(Header), round};
        EXPECT_EQ(ring_.next(found_), Next::kNothing) << round;
    }
}

TEST_F(EagerRing, Immediate) {
    *tail_of(0) = {77, RingTail::kImmediate, sizeof(Header), 1};
    ASSERT_EQ(ring_.next(found_), Next::kMessage);
    EXPECT_TRUE(found_.has_immediate);
    EXPECT_EQ(found_.immediate, 77u);
}

}  // namespace
}  // namespace heddle::protocol
