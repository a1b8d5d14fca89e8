// SPDX-License-Identifier: BSD-2-Clause
// Completion queues that are full. A peer process that dies while many of its connections have
// unsignaled WRs outstanding: the device completes all of them at once, and the CQ of the survivor
// has an entry for each. And a CQ that overruns all the same.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;

// By the device, rather than as soon as the message is copied.
constexpr std::uint64_t kReported = FI_COMPLETION | FI_TRANSMIT_COMPLETE;
// The send queues hold 5120 WRs together, where the CQ of a channel has 4095 entries.
constexpr unsigned kEndpoints = 40, kReceives = 16, kDepth = 128;

class CompletionRoom : public testing::TestWithParam<PostPath> {};
INSTANTIATE_TEST_SUITE_P(By, CompletionRoom, testing::Values(PostPath::kVerbs, PostPath::kDirect),
                         [](const auto& info) {
                             return info.param == PostPath::kVerbs ? "verbs" : "direct";
                         });

Options room_options(PostPath post) {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    options.post = post;
    options.receive_buffers = kReceives;
    options.send_depth = kDepth;
    options.timeouts.keepalive_s = 0;
    return options;
}

TEST_P(CompletionRoom, HasAnEntryForEachFlushedRequest) {
    const Options options = room_options(GetParam());
    Child dying([&](softhca::test::Channel& channel) {
        Options more = options;
        more.receive_buffers = kReceives + kBurst;
        std::vector<std::unique_ptr<End>> ends;
        for (unsigned k = 0; k < kEndpoints; ++k) {
            ends.push_back(std::make_unique<End>(more));
            channel.send(ends.back()->endpoint->name());
        }
        channel.meet();
    });
    End sender(options);
    std::vector<std::uint64_t> addresses;
    for (unsigned k = 0; k < kEndpoints; ++k)
        addresses.push_back(sender.addresses.insert(dying.channel().receive<EndpointAddress>()));
    for (const std::uint64_t address : addresses)
        ASSERT_TRUE(grow(sender, address));
    // Nobody reads them: each receive queue takes `kReceives` at most, and the rest is outstanding.
    constexpr unsigned kMessages = kReceives + kDepth;
    std::uint64_t value = 0;
    const iovec piece{&value, sizeof value};
    for (unsigned i = 0; i < kMessages; ++i)
        for (const std::uint64_t address : addresses) {
            ASSERT_EQ(sender.send(address, piece, FI_INJECT), 0);
            sender.endpoint->progress();
        }
    // Until nothing more is accepted by the device.
    const auto outstanding = [&] { return sender.endpoint->state().under_way; };
    ASSERT_TRUE(until([&] { return outstanding() >= 2900; }, {&sender})) << outstanding();
    dying.kill(SIGKILL);
    dying.wait();
    // Each message that did not find a receive is lost, and each has an error entry.
    unsigned lost = 0;
    constexpr unsigned kFewest = kEndpoints * (kMessages - kReceives - 1);
    EXPECT_TRUE(until(
        [&] {
            for (; !sender.transmit.empty(); sender.transmit.pop(), ++lost)
                EXPECT_NE(sender.transmit.front().error, 0);
            return lost >= kFewest && outstanding() == 0;
        },
        {&sender}))
        << lost << " of " << kFewest;
    EXPECT_LE(lost, kEndpoints * kMessages);
    EXPECT_EQ(outstanding(), 0U);
}

// The CQ has no entry left, and the last connections share what others have reserved and not used:
// how much that is depends on how much one of them has sent.
TEST_P(CompletionRoom, EndsAllMessagesWhenNoEntryIsLeft) {
    Options options = room_options(GetParam());
    options.receive_bytes = 0;  // no more receives after a burst
    End sender(options);
    // All but two have full send queues, and the last two share what is left.
    const auto entries = static_cast<unsigned>(sender.impl().channel->objects().cq()->cqe);
    const unsigned peer_count = entries / kDepth + 1;
    ASSERT_GT(peer_count, 2U);
    std::vector<std::unique_ptr<End>> peers;
    std::vector<End*> all{&sender};
    std::vector<std::uint64_t> addresses;
    for (unsigned k = 0; k < peer_count; ++k) {
        peers.push_back(std::make_unique<End>(options));
        all.push_back(peers.back().get());
        addresses.push_back(sender.addresses.insert(peers.back()->endpoint->name()));
    }
    std::uint64_t value = 0;
    const iovec piece{&value, sizeof value};
    unsigned sent = 0, ended = 0;
    const auto send = [&](unsigned peer, unsigned messages) {
        for (unsigned i = 0; i < messages; ++i, ++sent)
            ASSERT_EQ(sender.send(addresses[peer], piece, kReported), 0);
    };
    const auto all_ended = [&] {
        for (; !sender.transmit.empty(); sender.transmit.pop(), ++ended)
            EXPECT_EQ(sender.transmit.front().error, 0);
        return ended == sent && sender.endpoint->state().under_way == 0;
    };
    for (unsigned k = 0; k < peer_count; ++k)
        send(k, 1);
    ASSERT_TRUE(until(all_ended, all)) << "connecting";
    for (unsigned partly = 0; partly < kDepth; partly += 9) {
        for (unsigned k = 0; k + 2 < peer_count; ++k)
            send(k, kReceives + kDepth);
        send(peer_count - 2, kReceives + partly);
        send(peer_count - 1, kReceives + kDepth + 8);
        ASSERT_TRUE(until(all_ended, all))
            << "after " << partly << ": " << ended << " of " << sent << ", "
            << sender.endpoint->state().under_way << " outstanding";
    }
}

// A receiver that was away while a burst came has more receives for the next one, up to its limit.
TEST_P(CompletionRoom, HasMoreReceivesAfterABurst) {
    Options options = room_options(GetParam());
    options.eager_bytes = 1024;
    options.receive_bytes = std::size_t{100} << 10;  // less than a hundred buffers
    End sender(options), receiver(options);
    const auto to = sender.addresses.insert(receiver.endpoint->name());
    // CREDIT opens the window of the sender again. The receiver makes no progress during a burst,
    // so the connection that CREDIT needs is there before the first one.
    const auto back = receiver.addresses.insert(sender.endpoint->name());
    const iovec nothing{};
    ASSERT_EQ(receiver.send(back, nothing, kReported), 0);
    ASSERT_TRUE(until([&] { return !receiver.transmit.empty(); }, {&sender, &receiver}));
    receiver.transmit.pop();
    const auto buffers = [&] { return receiver.impl().channel->receive_buffers(); };
    std::uint32_t before = buffers();
    EXPECT_LE(before, kReceives);
    std::vector<char> bytes(900), room(900);
    const iovec piece{bytes.data(), bytes.size()};
    std::uint64_t number = 0;
    for (int burst = 0; burst < 6; ++burst) {
        constexpr unsigned kMessages = 90;
        for (unsigned i = 0; i < kMessages; ++i)
            ASSERT_EQ(sender.send(to, piece, kReported, kTag + i), 0);
        // The receiver reads once the device has used all receives that it has posted again.
        const unsigned arrive = std::min({before, kMessages});
        EXPECT_TRUE(until([&] { return sender.transmit.size() + 4 >= arrive; }, {&sender}))
            << "burst " << burst << ": " << sender.transmit.size() << " of " << arrive;
        for (unsigned i = 0; i < kMessages; ++i, ++number) {
            receiver.post(FI_ADDR_UNSPEC, room, &room, 0, kTag + i);
            ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&sender, &receiver}));
            ASSERT_EQ(receiver.receive.front().error, 0);
            receiver.receive.pop();
        }
        EXPECT_TRUE(until([&] { return sender.transmit.size() == kMessages; }, {&sender}));
        while (!sender.transmit.empty())
            sender.transmit.pop();
        EXPECT_TRUE(buffers() > before || buffers() > 64) << buffers() << " as before";
        before = buffers();
    }
    EXPECT_GT(before, 64U);
    EXPECT_LE(before, 100U);
}

unsigned complaints = 0;
std::string complaint;

// The device says so by an asynchronous event, and nothing completes by that CQ any more.
TEST(BrokenCompletionQueue, EndsAllOperationsWithAnError) {
    complaints = 0;
    Options options = room_options(PostPath::kVerbs);
    options.complain = [](const char* line) {
        ++complaints;
        complaint = line;
    };
    options.timeouts.keepalive_s = 1;
    End sender(options), receiver(options);
    const auto to = sender.addresses.insert(receiver.endpoint->name());
    std::vector<char> bytes(8, 'x'), room(8);
    const iovec piece{bytes.data(), bytes.size()};
    ASSERT_EQ(sender.send(to, piece, kReported), 0);
    ASSERT_TRUE(until([&] { return !sender.transmit.empty(); }, {&sender, &receiver}));
    ASSERT_EQ(sender.transmit.front().error, 0);
    sender.transmit.pop();
    ASSERT_TRUE(grow(sender, to, {&receiver}));
    sender.post(FI_ADDR_UNSPEC, room, &room);
    // Twice as many completions as the queue then has entries, and nobody reads them. What the
    // receiver has no room for is executed as soon as it reads.
    ASSERT_EQ(ibv_resize_cq(sender.impl().channel->objects().cq(), 31), 0);
    constexpr unsigned kMessages = 64;
    for (unsigned i = 0; i < kMessages; ++i)
        ASSERT_EQ(sender.send(to, piece, kReported), 0);
    const auto has_event = [&] { return sender.impl().channel->drain().device_error.load() != 0; };
    ASSERT_TRUE(until(has_event, {&receiver}));
    unsigned ended = 0, failed = 0;
    EXPECT_TRUE(until(
        [&] {
            for (; !sender.transmit.empty(); sender.transmit.pop(), ++ended)
                if (sender.transmit.front().error != 0) ++failed;
            return ended == kMessages && !sender.receive.empty();
        },
        {&sender, &receiver}))
        << ended;
    EXPECT_GE(failed, kMessages - 32);
    ASSERT_FALSE(sender.receive.empty());
    EXPECT_EQ(sender.receive.front().error, EIO);
    sender.receive.pop();
    // What is asked for later ends, too.
    sender.post(FI_ADDR_UNSPEC, room, &room);
    sender.send(to, bytes);
    EXPECT_TRUE(until([&] { return !sender.transmit.empty() && !sender.receive.empty(); },
                      {&sender, &receiver}));
    EXPECT_EQ(sender.transmit.front().error, EIO);
    EXPECT_EQ(sender.receive.front().error, EIO);
    EXPECT_EQ(complaints, 1U);
    EXPECT_NE(complaint.find("reports \"CQ error\""), std::string::npos) << complaint;
}

}  // namespace
}  // namespace heddle::protocol::test
