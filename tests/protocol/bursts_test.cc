// SPDX-License-Identifier: BSD-2-Clause
// Many messages from one that only sends to one that reads them later: neither side may make more
// of them than it has to, and no more than the window are under way.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

Options options_by(PostPath path) {
    Options options;
    options.rendezvous_above = 32768;
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
    // The connection that the receiver's CREDIT needs is there before: it would come among the
    // messages, and what goes on at the sender for it ends what has no completion of its own.
    ASSERT_EQ(two.receiver.send(two.from, iovec{}, FI_COMPLETION | FI_TRANSMIT_COMPLETE), 0);
    ASSERT_TRUE(
        until([&] { return !two.receiver.transmit.empty(); }, {&two.sender, &two.receiver}));
    two.receiver.transmit.pop();
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
    // The receiver must connect to the sender before it can give credit.
    for (int i = 0; i < 500; ++i)
        ASSERT_TRUE(until([&] { return two.sender.send(two.to, piece, FI_INJECT) == 0; },
                          {&two.sender, &two.receiver}));
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

// More than the window, of eager messages or fragments; all of them are copied before anything is
// read. Each side then waits for credit, and has to give some in front of what waits.
TEST_P(Bursts, BothWaysBeyondTheWindow) {
    Two two(options_by(GetParam()));
    End* const ends[] = {&two.sender, &two.receiver};
    const std::uint64_t addresses[] = {two.to, two.from};
    constexpr unsigned kMessages = 2 * kWindow;
    for (const std::size_t bytes : {std::size_t{200}, std::size_t{30'000}}) {
        std::vector<char> text(bytes), room(bytes);
        for (unsigned i = 0; i < kMessages; ++i)
            for (int side : {0, 1}) {
                text[bytes - 1] = static_cast<char>(i);
                const iovec piece{text.data(), bytes};
                ASSERT_EQ(ends[side]->send(addresses[side], piece, FI_COMPLETION), 0);
                // Its buffer is in use until then; it waits if the window is full.
                if (i < kWindow / 8) {
                    ASSERT_TRUE(until([&] { return !ends[side]->transmit.empty(); },
                                      {&two.sender, &two.receiver}));
                    ends[side]->transmit.pop();
                }
            }
        for (int side : {0, 1})
            for (unsigned i = 0; i < kMessages; ++i) {
                ends[side]->post(addresses[side], room, nullptr);
                ASSERT_TRUE(until([&] { return !ends[side]->receive.empty(); },
                                  {&two.sender, &two.receiver}))
                    << "message " << i << " of " << bytes << " bytes";
                ASSERT_EQ(ends[side]->receive.front().error, 0);
                ends[side]->receive.pop();
            }
        ASSERT_TRUE(until([&] { return two.sender.endpoint->state().held == 0; },
                          {&two.sender, &two.receiver}));
        for (End* end : ends)
            while (!end->transmit.empty())
                end->transmit.pop();
    }
}

// It has taken all that was under way, and says nothing more: what waits for the window ends.
TEST_P(Bursts, BeyondTheWindowOfOneThatDies) {
    Options options = options_by(GetParam());
    options.timeouts.keepalive_s = 1;
    softhca::test::Child dying([&](softhca::test::Channel& channel) {
        End receiver(options);
        channel.send(receiver.endpoint->name());
        channel.meet();
    });
    End sender(options);
    const auto to = sender.addresses.insert(dying.channel().receive<EndpointAddress>());
    std::vector<char> bytes(200, 'w');
    const iovec piece{bytes.data(), bytes.size()};
    std::uint64_t number = 0;
    ASSERT_EQ(sender.send(to, {&number, sizeof number}, FI_INJECT), 0);
    ASSERT_TRUE(until([&] { return sender.endpoint->state().held == 0; }, {&sender}));
    constexpr unsigned kMore = 8;
    for (unsigned i = 0; i < kWindow + kMore; ++i)
        ASSERT_EQ(sender.send(to, piece, FI_COMPLETION), 0);
    ASSERT_TRUE(until([&] { return sender.transmit.size() == kWindow; }, {&sender}));
    EXPECT_EQ(sender.endpoint->state().held, kMore);
    ASSERT_TRUE(until([&] { return sender.endpoint->state().under_way < 32; }, {&sender}));
    dying.kill(SIGKILL);
    dying.wait();
    for (unsigned i = 0; i < kWindow; ++i, sender.transmit.pop())
        EXPECT_EQ(sender.transmit.front().error, 0);
    ASSERT_TRUE(until([&] { return sender.transmit.size() >= kMore; }, {&sender}));
    for (; !sender.transmit.empty(); sender.transmit.pop())
        EXPECT_NE(sender.transmit.front().error, 0);
    EXPECT_EQ(sender.endpoint->state().held, 0U);
}

}  // namespace
}  // namespace heddle::protocol::test
