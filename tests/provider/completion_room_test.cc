// SPDX-License-Identifier: BSD-2-Clause
// A peer process that dies while many of its connections have unsignaled WRs outstanding: the
// device completes all of them at once, and the CQ of the survivor has an entry for each.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <vector>

#include "tests/provider/connector_support.h"
#include "tests/provider/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;

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
    options.keepalive_s = 0;
    return options;
}

TEST_P(CompletionRoom, HasAnEntryForEachFlushedRequest) {
    const Options options = room_options(GetParam());
    Child dying([&](softhca::test::Channel& channel) {
        std::vector<std::unique_ptr<End>> ends;
        for (unsigned k = 0; k < kEndpoints; ++k) {
            ends.push_back(std::make_unique<End>(options));
            channel.send(ends.back()->endpoint->name());
        }
        channel.meet();
    });
    End sender(options);
    std::vector<std::uint64_t> addresses;
    for (unsigned k = 0; k < kEndpoints; ++k)
        addresses.push_back(sender.addresses.insert(dying.channel().receive<Name>()));
    // Nobody reads them: each receive queue takes `kReceives` at most, and the rest is outstanding.
    constexpr unsigned kMessages = kReceives + kDepth;
    std::uint64_t value = 0;
    iovec piece{&value, sizeof value};
    for (unsigned i = 0; i < kMessages; ++i)
        for (const std::uint64_t address : addresses) {
            SendArguments message;
            message.iov = &piece;
            message.iov_count = 1;
            message.to = address;
            message.tag = kTag;
            message.flags = FI_TAGGED | FI_INJECT;
            ASSERT_EQ(sender.endpoint->send(message), 0);
            sender.endpoint->progress();
        }
    // Until nothing more is accepted by the device.
    const auto outstanding = [&] { return sender.endpoint->state().under_way; };
    ASSERT_TRUE(until([&] { return outstanding() >= 3000; }, {&sender})) << outstanding();
    dying.kill(SIGKILL);
    dying.wait();
    // Each message that did not find a receive is lost, and each has an error entry.
    unsigned lost = 0;
    constexpr unsigned kFewest = kEndpoints * (kMessages - kReceives - 1);
    EXPECT_TRUE(until(
        [&] {
            for (; !sender.transmit.empty(); sender.transmit.pop(), ++lost)
                EXPECT_NE(sender.transmit.front().error, 0);
            return lost >= kFewest;
        },
        {&sender}))
        << lost << " of " << kFewest;
    EXPECT_LE(lost, kEndpoints * kMessages);
    EXPECT_EQ(outstanding(), 0U);
}

}  // namespace
}  // namespace heddle::protocol::test
