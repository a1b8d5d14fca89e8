// SPDX-License-Identifier: BSD-2-Clause
// Many small messages from one that only sends to one that reads them later: neither side may make
// more of them than it has to.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

Options options_by(PostPath path) {
    Options options;
    options.post = path;
    options.rendezvous = Rendezvous::kGet;
    return options;
}

class Bursts : public testing::TestWithParam<PostPath> {};
INSTANTIATE_TEST_SUITE_P(By, Bursts, testing::Values(PostPath::kDirect, PostPath::kVerbs),
                         [](const auto& info) {
                             return info.param == PostPath::kDirect ? "direct" : "verbs";
                         });

// The two of a test, connected.
struct Two {
    explicit Two(const Options& options) : sender(options), receiver(options) {
        to = sender.addresses.insert(receiver.endpoint->name());
        from = receiver.addresses.insert(sender.endpoint->name());
    }
    // Sends the number as a message of eight bytes, without a report.
    ssize_t inject(std::uint64_t number) {
        const iovec piece{&number, sizeof number};
        return sender.send(to, piece, FI_INJECT);
    }
    // Receives the next message.
    void next(std::uint64_t& number) {
        std::vector<char> room(sizeof number);
        receiver.post(from, room, nullptr);
        ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&sender, &receiver}));
        receiver.receive.pop();
        std::memcpy(&number, room.data(), sizeof number);
    }
    End sender, receiver;
    std::uint64_t to, from;
};

// The sender makes progress by itself: what has left its queue makes room.
TEST_P(Bursts, ASenderAloneNeedsNoRequests) {
    Two two(options_by(GetParam()));
    std::uint64_t number = 0;
    ASSERT_EQ(two.inject(number++), 0);
    ASSERT_TRUE(
        until([&] { return two.sender.impl().state().held == 0; }, {&two.sender, &two.receiver}));
    // More than its queue has places for, and fewer than the receiver has buffers for.
    for (; number < 180; ++number) {
        ASSERT_EQ(two.inject(number), 0);
        ASSERT_EQ(two.sender.impl().state().held, 0U) << "message " << number;
    }
    ASSERT_TRUE(
        until([&] { return two.receiver.endpoint->counts().received == number; }, {&two.receiver}));
}

// An injected message that is copied asks the device for no completion of its own: the next one of
// its connection gives its buffer back. Messages go on when all buffers have been used.
TEST_P(Bursts, CopiesThatAreInjectedNeedNoCompletionEach) {
    Two two(options_by(GetParam()));
    std::uint64_t first = 0;
    ASSERT_EQ(two.inject(first), 0);
    ASSERT_TRUE(
        until([&] { return two.sender.impl().state().held == 0; }, {&two.sender, &two.receiver}));
    std::vector<char> bytes(200, 'c');
    const iovec piece{bytes.data(), bytes.size()};
    for (int i = 0; i < 20; ++i)
        ASSERT_EQ(two.sender.send(two.to, piece, FI_INJECT), 0);
    ASSERT_TRUE(
        until([&] { return two.receiver.endpoint->counts().received == 21; }, {&two.receiver}));
    for (int i = 0; i < 20; ++i)
        two.sender.endpoint->progress();
    EXPECT_GE(two.sender.impl().channel->under_way(), 15U) << "what nobody asked for";
    for (int i = 0; i < 500; ++i) {
        ASSERT_EQ(two.sender.send(two.to, piece, FI_INJECT), 0);
        two.receiver.endpoint->progress();
    }
    ASSERT_TRUE(until([&] { return two.receiver.endpoint->counts().received == 521; },
                      {&two.sender, &two.receiver}));
    EXPECT_EQ(two.sender.endpoint->counts().eager, 520U);
}

// When the receiver reads nothing, the sender is asked to try again, long before its memory is full
// of messages.
TEST_P(Bursts, ASenderIsHeldBackByAReceiverThatDoesNotRead) {
    Options few = options_by(GetParam());
    few.receive_bytes = 0;
    Two two(few);
    constexpr std::uint64_t kMost = 4096;
    std::uint64_t number = 0;
    while (number < kMost && two.inject(number) == 0)
        ++number;
    EXPECT_GT(number, 200U) << "those that wait for the connection, at least";
    ASSERT_LT(number, kMost);
    for (std::uint64_t i = 0, got = 0; i < number; ++i) {
        ASSERT_NO_FATAL_FAILURE(two.next(got));
        ASSERT_EQ(got, i);
    }
}

// A program that receives one after the other finds each in the completion queue: of those that
// have no receive yet, not more than one is read for each that has. The verbs path reads what there
// is.
TEST(BurstsDirectly, WhatAReceiverDoesNotWantYetStaysInTheQueue) {
    Two two(options_by(PostPath::kDirect));
    constexpr std::uint64_t kMessages = 100;
    std::uint64_t got = 0;
    ASSERT_EQ(two.inject(0), 0);
    ASSERT_NO_FATAL_FAILURE(two.next(got));
    for (std::uint64_t number = 1; number < kMessages; ++number)
        ASSERT_EQ(two.inject(number), 0);
    ASSERT_TRUE(until([&] { return two.sender.impl().channel->under_way() < 32; }, {&two.sender}));
    const std::uint64_t before = two.receiver.endpoint->counts().unexpected;
    for (std::uint64_t number = 1; number < kMessages; ++number) {
        ASSERT_NO_FATAL_FAILURE(two.next(got));
        ASSERT_EQ(got, number);
    }
    EXPECT_LE(two.receiver.endpoint->counts().unexpected - before, kMessages / 2);
}

}  // namespace
}  // namespace heddle::protocol::test
