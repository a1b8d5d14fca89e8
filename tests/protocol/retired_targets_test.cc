// SPDX-License-Identifier: BSD-2-Clause
// Targets whose askers have gone, while what they had received waits to be read. The variant
// protocol.reuse_numbers.RetiredTargets runs these on a device that gives the number of a queue
// pair that is gone to the next one.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <vector>

#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

class RetiredTargets : public testing::TestWithParam<PostPath> {
protected:
    static Options options() {
        Options options;
        options.endpoints = Category::kMpiEverywhere;
        options.post = GetParam();
        return options;
    }
};
INSTANTIATE_TEST_SUITE_P(By, RetiredTargets, testing::Values(PostPath::kVerbs, PostPath::kDirect),
                         [](const auto& info) {
                             return info.param == PostPath::kVerbs ? "verbs" : "direct";
                         });

// The receiver reads nothing until the next sender has been connected.
TEST_P(RetiredTargets, KeepTheirNumbersUntilTheirMessagesAreRead) {
    End receiver(options());
    constexpr unsigned kSenders = 4;
    std::vector<fi_addr_t> addresses;
    for (unsigned k = 0; k < kSenders; ++k) {
        End sender(options());
        addresses.push_back(receiver.addresses.insert(sender.endpoint->name()));
        const auto to = sender.addresses.insert(receiver.endpoint->name());
        std::vector<char> message(8, static_cast<char>('a' + k));
        sender.send(to, message);
        ASSERT_TRUE(until([&] { return !sender.transmit.empty(); }, {&sender}));
        ASSERT_EQ(sender.transmit.front().error, 0);
    }
    for (unsigned k = 0; k < kSenders; ++k) {
        std::vector<char> room(8);
        receiver.post(addresses[k], room, &room);
        ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&receiver}))
            << "message " << k << " was given to somebody else";
        EXPECT_EQ(receiver.receive.front().error, 0);
        EXPECT_EQ(room, std::vector<char>(8, static_cast<char>('a' + k)));
        receiver.receive.pop();
    }
    EXPECT_EQ(receiver.endpoint->counts().protocol_errors, 0);
    // Then they go.
    const auto targets = [&] { return receiver.impl().connector.counts().targets; };
    EXPECT_TRUE(until([&] { return targets() == 0; }, {&receiver})) << targets();
}

// Registers the peer's endpoint anew, as one whose reader has this drain.
void read_by(Peer& peer, Drain& drain) {
    peer.connector->remove(peer.name());
    LocalEndpoint local{peer.name(),     peer.context.get(),        peer.pd.get(),
                        peer.xrcd.get(), peer.locals[0]->srq.get(), peer.locals[0]->cq.get()};
    local.drain = &drain;
    peer.connector->add(local);
}

// What a connector's targets have delivered to endpoints that nobody polls.
TEST(RetiredTargetsOfAConnector, WaitForWhoeverReads) {
    Peer a(true), b(true);
    struct Reader {
        std::atomic<unsigned> asked{0};
        Drain drain;
    } reader;
    reader.drain.argument = &reader;
    reader.drain.ask = [](void* self) { ++static_cast<Reader*>(self)->asked; };
    read_by(b, reader.drain);
    b.post_receive();
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 1));
    a.connector->disconnect(channel->request);
    ASSERT_TRUE(b.soon([&](const auto&) { return reader.asked == 1; }));
    EXPECT_EQ(b.connector->counts().targets, 1U);
    EXPECT_TRUE(b.receive(1, a.name()));
    reader.drain.done = reader.drain.asked.load();
    b.connector->drained();
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; }));
}

// An endpoint that closes is waited for no more.
TEST(RetiredTargetsOfAConnector, GoWithTheirReader) {
    Peer a(true), b(true);
    Drain drain;
    std::atomic<bool> asked = false;
    drain.argument = &asked;
    drain.ask = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
    b.add();  // the context stays
    read_by(b, drain);
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    a.connector->disconnect(channel->request);
    ASSERT_TRUE(b.soon([&](const auto&) { return asked.load(); }));
    EXPECT_EQ(b.connector->counts().targets, 1U);
    b.connector->remove(b.name());
    b.connector->drained();
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.targets == 0; }));
}

}  // namespace
}  // namespace heddle::protocol::test
