// SPDX-License-Identifier: BSD-2-Clause
// Senders that die in the middle of a message. The variant protocol.packets.BrokenOff runs this on
// a device whose messages have a middle, and whose SRQ entries stay taken until the target is in
// the error state.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;

Options broken_off_options() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    options.receive_buffers = 8;
    options.receive_bytes = 0;
    options.eager_bytes = 64 * 1024;
    options.unexpected_bytes = std::size_t{1} << 30;
    options.timeouts.keepalive_s = 1;
    return options;
}

// The receives that the dead had begun to fill are there again: another sender's messages find
// them, though nobody reads. All processes are there before this one has a device.
TEST(BrokenOffMessages, LeaveTheirReceivesToOthers) {
    constexpr unsigned kDying = 6;
    constexpr unsigned kMessages = 5;  // of 7 receives one may wait for a doorbell
    const Options options = broken_off_options();
    const auto send = [](End& sender, std::uint64_t to, std::vector<char>& bytes,
                         std::uint64_t tag) {
        sender.send(to, bytes, tag);
        while (sender.transmit.empty()) {
            sender.endpoint->progress();
            std::this_thread::yield();
        }
        sender.transmit.pop();
    };
    std::vector<std::unique_ptr<Child>> dying;
    for (unsigned k = 0; k < kDying; ++k)
        dying.push_back(std::make_unique<Child>([&](softhca::test::Channel& channel) {
            const EndpointAddress name = channel.receive<EndpointAddress>();
            End sender(options);
            channel.send(sender.endpoint->name());
            const auto to = sender.addresses.insert(name);
            std::vector<char> bytes(options.eager_bytes, 'd');
            for (;;)
                send(sender, to, bytes, kTag);
        }));
    Child living([&](softhca::test::Channel& channel) {
        const EndpointAddress name = channel.receive<EndpointAddress>();
        End sender(options);
        const auto to = sender.addresses.insert(name);
        std::vector<char> bytes(8, 'l');
        for (unsigned i = 0; i < kMessages; ++i)
            send(sender, to, bytes, kTag + 2);
        channel.meet();
    });
    Options patience = options;
    patience.timeouts.connect_ms = 1000;  // the dead do not answer
    End reader(patience);
    const EndpointAddress name = reader.endpoint->name();
    std::vector<std::uint64_t> addresses;
    for (const auto& child : dying)
        child->channel().send(name);
    for (const auto& child : dying)
        addresses.push_back(reader.addresses.insert(child->channel().receive<EndpointAddress>()));
    ASSERT_TRUE(until([&] { return reader.endpoint->counts().received >= 4 * kDying; }, {&reader}));
    for (const auto& child : dying)
        child->kill(SIGKILL);
    for (const auto& child : dying)
        child->wait();
    // A receive that names a dead one ends when that is noticed.
    std::vector<char> room(8);
    for (const std::uint64_t address : addresses)
        reader.post(address, room, &room, 0, kTag + 1);
    ASSERT_TRUE(until([&] { return reader.receive.size() >= kDying; }, {&reader}));
    for (; !reader.receive.empty(); reader.receive.pop())
        EXPECT_NE(reader.receive.front().error, 0);
    EXPECT_TRUE(until([&] { return reader.impl().connector.counts().targets == 0; }, {&reader}));
    living.channel().send(name);
    living.channel().meet();
    living.expect_success();
}

}  // namespace
}  // namespace heddle::protocol::test
