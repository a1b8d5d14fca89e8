// SPDX-License-Identifier: BSD-2-Clause
// A ring in shared memory, both sides, in one process: messages of all sizes in order and whole,
// room that comes back, a receiver that sleeps, and a side that breaks the rules.
#include "protocol/shm/shm_ring.h"

#include <algorithm>
#include <thread>

#include "tests/unit/protocol_shm_support.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kLongestInRing = kLeastShmArea / 4;

class ShmRing : public ::testing::Test {
protected:
    static std::vector<std::byte> content(std::uint32_t number, std::size_t bytes) {
        std::vector<std::byte> made(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            made[i] = static_cast<std::byte>(number * 7 + i * 3);
        return made;
    }
    static Header header(std::uint32_t number) { return {Kind::kEager, 0, 1, 2, 0, number}; }
    // Message `number`, of so many bytes with its header.
    bool send(std::uint32_t number, std::size_t bytes) {
        return write_message(sender_, header(number), content(number, bytes - sizeof(Header)));
    }
    // The next message is that one.
    static void expect_next(ShmReceiver& receiver, std::uint32_t number, std::size_t bytes) {
        ShmReceiver::Found found;
        ASSERT_EQ(receiver.next(found), ShmReceiver::Next::kMessage) << "message " << number;
        ASSERT_EQ(found.bytes.size(), bytes) << "message " << number;
        Header seen;
        std::memcpy(&seen, found.bytes.data(), sizeof seen);
        EXPECT_EQ(seen.tag, number);
        const auto wanted = content(number, bytes - sizeof seen);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), found.bytes.begin() + sizeof seen))
            << "message " << number;
        receiver.pop();
    }
    void expect_next(std::uint32_t number, std::size_t bytes) {
        expect_next(receiver_, number, bytes);
    }
    void expect_nothing() {
        ShmReceiver::Found found;
        EXPECT_EQ(receiver_.next(found), ShmReceiver::Next::kNothing);
        EXPECT_TRUE(receiver_.is_empty());
    }
    static std::size_t size_of(std::uint32_t number) {
        constexpr std::size_t kSizes[] = {16,  24,  ShmSlot::kInside, ShmSlot::kInside + 1, 500,
                                          128, 129, kLongestInRing,   kLongestInRing - 63,  17};
        return kSizes[number % std::size(kSizes)];
    }

    RingMemory memory_{kSmallRing};
    ShmSender sender_{memory_.at(), kSmallRing, false};
    ShmReceiver receiver_{memory_.at(), kSmallRing};
};

TEST_F(ShmRing, MessagesOfAllSizesComeInOrder) {
    expect_nothing();
    std::uint32_t sent = 0, read = 0;
    while (read < 1000) {
        while (sent - read < 3 && send(sent, size_of(sent)))
            ++sent;
        ASSERT_NE(sent, read) << "a ring whose messages were all read has room";
        expect_next(read, size_of(read));
        ++read;
    }
    EXPECT_FALSE(sender_.is_broken());
}

TEST_F(ShmRing, RemoteDataComesWithItsMessage) {
    ASSERT_TRUE(write_message(sender_, header(0), {}, 0xdeadbeef));
    ASSERT_TRUE(write_message(sender_, header(1), {}));
    ShmReceiver::Found found;
    ASSERT_EQ(receiver_.next(found), ShmReceiver::Next::kMessage);
    EXPECT_TRUE(found.has_immediate);
    EXPECT_EQ(found.immediate, 0xdeadbeef);
    receiver_.pop();
    ASSERT_EQ(receiver_.next(found), ShmReceiver::Next::kMessage);
    EXPECT_FALSE(found.has_immediate);
}

TEST_F(ShmRing, ItIsFullOnceAllSlotsAre) {
    for (std::uint32_t i = 0; i < kSmallRing.slots; ++i)
        ASSERT_TRUE(send(i, sizeof(Header)));
    EXPECT_FALSE(send(kSmallRing.slots, sizeof(Header)));
    EXPECT_TRUE(sender_.has_untaken());
    expect_next(0, sizeof(Header));
    receiver_.settle();
    EXPECT_TRUE(send(kSmallRing.slots, sizeof(Header)));
    EXPECT_FALSE(send(kSmallRing.slots + 1, sizeof(Header)));
    for (std::uint32_t i = 1; i <= kSmallRing.slots; ++i)
        expect_next(i, sizeof(Header));
    receiver_.settle();
    EXPECT_FALSE(sender_.has_untaken());
}

// Wherever the message before it ended.
TEST_F(ShmRing, AnEmptyRingHasRoomForTheLongest) {
    std::uint32_t number = 0;
    for (std::size_t bytes = ShmSlot::kInside + 1; bytes < kLongestInRing; bytes += 37) {
        ASSERT_TRUE(send(number, bytes));
        expect_next(number++, bytes);
        receiver_.settle();
        ASSERT_TRUE(send(number, kLongestInRing)) << "behind one of " << bytes << " bytes";
        expect_next(number++, kLongestInRing);
        receiver_.settle();
    }
}

TEST_F(ShmRing, TheAreaIsFullBeforeTheSlots) {
    std::uint32_t sent = 0;
    while (send(sent, kLongestInRing))
        ++sent;
    EXPECT_EQ(sent, 4u);
    EXPECT_TRUE(send(sent, sizeof(Header))) << "a message inside its slot needs no area";
    for (std::uint32_t i = 0; i < sent; ++i)
        expect_next(i, kLongestInRing);
    expect_next(sent, sizeof(Header));
    expect_nothing();
}

TEST_F(ShmRing, OneSenderWakesOneSleeper) {
    bool wakes = true;
    ASSERT_TRUE(write_message(sender_, header(0), {}, {}, &wakes));
    EXPECT_FALSE(wakes);
    receiver_.arm();
    EXPECT_FALSE(receiver_.is_empty()) << "it sees what was there before, and does not sleep";
    ASSERT_TRUE(write_message(sender_, header(1), {}, {}, &wakes));
    EXPECT_TRUE(wakes);
    ASSERT_TRUE(write_message(sender_, header(2), {}, {}, &wakes));
    EXPECT_FALSE(wakes) << "it has been woken";
}

TEST_F(ShmRing, AReceiverThatTakesTooMuchIsFound) {
    ASSERT_TRUE(send(0, sizeof(Header)));
    for (const std::uint32_t taken : {1u, 2u, 1u << 31}) {
        SCOPED_TRACE(taken);
        RingMemory memory(kSmallRing);
        ShmSender sender(memory.at(), kSmallRing, true);
        for (std::uint32_t i = 0; i < kSmallRing.slots; ++i)
            ASSERT_TRUE(write_message(sender, header(i)));
        memory.control().progress.taken = kSmallRing.slots + taken;
        EXPECT_FALSE(write_message(sender, header(99)));
        EXPECT_TRUE(sender.is_broken());
    }
}

TEST_F(ShmRing, ALengthThatCannotBeIsFound) {
    for (const std::uint32_t length : {0u, 15u, static_cast<std::uint32_t>(kLongestInRing + 1),
                                       1u << 30, ShmSlot::kHasImmediate}) {
        SCOPED_TRACE(length);
        memory_.slot(0).mark = std::uint64_t{1} << 32 | length;
        ShmReceiver::Found found;
        EXPECT_EQ(receiver_.next(found), ShmReceiver::Next::kBroken);
    }
    memory_.slot(0).mark = std::uint64_t{2} << 32 | sizeof(Header);
    expect_nothing();
}

// A sanitizer for threads finds an access that is not ordered.
TEST_F(ShmRing, TwoThreadsShareIt) {
    constexpr std::uint32_t kMessages = 20'000;
    std::thread writer([&] {
        for (std::uint32_t i = 0; i < kMessages;)
            if (send(i, size_of(i)))
                ++i;
            else
                std::this_thread::yield();
    });
    for (std::uint32_t i = 0; i < kMessages;) {
        if (receiver_.is_empty()) {
            receiver_.settle();
            std::this_thread::yield();
            continue;
        }
        expect_next(i, size_of(i));
        ++i;
    }
    writer.join();
    EXPECT_FALSE(sender_.is_broken());
}

TEST(ShmShapes, OnlyPossibleOnesAreTaken) {
    EXPECT_TRUE((ShmShape{kLeastShmSlots, kLeastShmArea}.is_possible()));
    EXPECT_TRUE((ShmShape{kMostShmSlots, kMostShmArea}.is_possible()));
    EXPECT_FALSE((ShmShape{kLeastShmSlots / 2, kLeastShmArea}.is_possible()));
    EXPECT_FALSE((ShmShape{kMostShmSlots * 2, kLeastShmArea}.is_possible()));
    EXPECT_FALSE((ShmShape{kLeastShmSlots + 1, kLeastShmArea}.is_possible()));
    EXPECT_FALSE((ShmShape{kLeastShmSlots, kLeastShmArea / 2}.is_possible()));
    EXPECT_FALSE((ShmShape{kLeastShmSlots, kMostShmArea * 2}.is_possible()));
    EXPECT_FALSE((ShmShape{kLeastShmSlots, kLeastShmArea + 64}.is_possible()));
    EXPECT_FALSE((ShmShape{0, 0}.is_possible()));
}

}  // namespace
}  // namespace heddle::protocol::test
