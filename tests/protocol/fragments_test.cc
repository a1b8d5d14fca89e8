// SPDX-License-Identifier: BSD-2-Clause
// Messages of several receive buffers that do not go by rendezvous, between two endpoints.
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;

std::vector<char> text_of(std::size_t number, std::size_t bytes) {
    std::vector<char> text(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        text[i] = static_cast<char>(number * 31 + i * 7 + i / 251);
    return text;
}

class FragmentedMessages : public testing::TestWithParam<std::tuple<PostPath, bool>> {
protected:
    static Options options() {
        Options options;
        options.post = std::get<0>(GetParam());
        options.rendezvous = Rendezvous::kGet;
        options.rendezvous_above = 32768;
        options.send_depth = 16;  // fragments wait for room
        if (std::get<1>(GetParam())) options.rings.peers = 4;
        return options;
    }
};
INSTANTIATE_TEST_SUITE_P(
    By, FragmentedMessages,
    testing::Combine(testing::Values(PostPath::kDirect, PostPath::kVerbs), testing::Bool()),
    [](const auto& info) {
        return std::string(std::get<0>(info.param) == PostPath::kDirect ? "direct" : "verbs") +
               (std::get<1>(info.param) ? "_rings" : "");
    });

// Every third receive is posted late; small messages between, which go by a ring where there is
// one.
TEST_P(FragmentedMessages, ComeWholeAndInOrder) {
    constexpr std::size_t kSizes[] = {8193, 8, 16384, 16385, 0, 32768, 100, 24577, 33000};
    constexpr std::size_t kMessages = 450, kRoom = 40'000;
    End sender(options()), receiver(options());
    const auto to = sender.addresses.insert(receiver.endpoint->name());
    const auto from = receiver.addresses.insert(sender.endpoint->name());
    std::vector<std::vector<char>> out, in(kMessages, std::vector<char>(kRoom));
    for (std::size_t i = 0; i < kMessages; ++i)
        out.push_back(text_of(i, kSizes[i % std::size(kSizes)]));
    std::size_t posted = 0, sent = 0, received = 0;
    while (received < kMessages) {
        for (; posted < kMessages && posted < received + 1 + received % 12; ++posted)
            receiver.post(from, in[posted], &in[posted]);
        for (; sent < kMessages && sent < received + 20; ++sent)
            sender.send(to, out[sent]);
        if (received % 100 == 50) receiver.impl().look_who_talks(true);
        ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&sender, &receiver}));
        const CompletionEntry entry = receiver.receive.front();
        receiver.receive.pop();
        ASSERT_EQ(entry.error, 0);
        // One by rendezvous may end after those behind it; its receive was the first all the same.
        const auto at =
            static_cast<std::size_t>(static_cast<std::vector<char>*>(entry.context) - in.data());
        ASSERT_EQ(entry.bytes, out[at].size());
        ASSERT_EQ(std::memcmp(in[at].data(), out[at].data(), entry.bytes), 0) << "message " << at;
        ++received;
    }
    EXPECT_EQ(sender.endpoint->counts().rendezvous, kMessages / std::size(kSizes))
        << "those of 33000 bytes";
    EXPECT_EQ(sender.endpoint->counts().by_ring != 0, std::get<1>(GetParam()));
    EXPECT_EQ(sender.endpoint->counts().protocol_errors, 0U);
    EXPECT_EQ(receiver.endpoint->counts().protocol_errors, 0U);
}

// Too many that nobody receives go by rendezvous, and all come when they are wanted.
TEST_P(FragmentedMessages, WaitForCreditAsOthersDo) {
    Options few = options();
    few.unexpected_bytes = 100'000;
    End sender(few), receiver(few);
    const auto to = sender.addresses.insert(receiver.endpoint->name());
    const auto from = receiver.addresses.insert(sender.endpoint->name());
    std::vector<char> out = text_of(3, 30'000), in(out.size());
    for (int round = 0; round < 4; ++round) {
        const std::uint64_t before = sender.endpoint->counts().rendezvous;
        for (int i = 0; i < 8; ++i)
            sender.send(to, out);
        const std::uint64_t all = 8U * (static_cast<unsigned>(round) + 1);
        ASSERT_TRUE(until([&] { return receiver.endpoint->counts().unexpected == all; },
                          {&sender, &receiver}));
        EXPECT_GE(sender.endpoint->counts().rendezvous - before, 5U);
        for (int i = 0; i < 8; ++i) {
            std::fill(in.begin(), in.end(), '.');
            receiver.post(from, in, nullptr);
            ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&sender, &receiver}));
            receiver.receive.pop();
            ASSERT_EQ(in, out);
        }
    }
    EXPECT_LT(sender.endpoint->counts().rendezvous, 32U) << "credit came back";
}

// The receive ends when the sender is found to be dead, though it was not asked for anything.
TEST(FragmentedMessage, EndsWithItsSender) {
    Options options;
    options.rendezvous_above = 32768;
    options.endpoints = Category::kMpiEverywhere;
    options.timeouts.keepalive_s = 1;
    options.timeouts.connect_ms = 5'000;  // it may die while the reader connects to it
    Child dying([&](softhca::test::Channel& channel) {
        const EndpointAddress name = channel.receive<EndpointAddress>();
        End sender(options);
        const auto to = sender.addresses.insert(name);
        channel.send(sender.endpoint->name());
        std::vector<char> one(8, 'x');
        sender.send(to, one);
        while (sender.transmit.empty())
            sender.endpoint->progress();
        protocol::Peer& peer = *sender.impl().peers.at(to);
        const Header header{Kind::kFragment,
                            Header::kTagged,
                            sender.impl().name.endpoint,
                            peer.name.endpoint,
                            1,
                            kTag};
        const FragmentBody body{20'000, 0};
        std::vector<std::byte> bytes(sizeof header + sizeof body + 5);
        std::memcpy(bytes.data(), &header, sizeof header);
        std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
        sender.impl().control_message(peer, std::move(bytes));
        for (;;)
            sender.endpoint->progress();
    });
    End reader(options);
    dying.channel().send(reader.endpoint->name());
    const auto from = reader.addresses.insert(dying.channel().receive<EndpointAddress>());
    std::vector<char> first(8), second(20'000);
    reader.post(from, first, &first);
    reader.post(from, second, &second);
    ASSERT_TRUE(until([&] { return !reader.receive.empty(); }, {&reader}));
    reader.receive.pop();
    ASSERT_TRUE(until([&] { return reader.endpoint->counts().received == 2; }, {&reader}));
    EXPECT_EQ(reader.endpoint->cancel(&second), -FI_ENOENT) << "it has the message already";
    dying.kill(SIGKILL);
    ASSERT_TRUE(until([&] { return !reader.receive.empty(); }, {&reader}));
    EXPECT_EQ(reader.receive.front().context, &second);
    EXPECT_NE(reader.receive.front().error, 0);
}

}  // namespace
}  // namespace heddle::protocol::test
