// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint counts of its messages: in the work queue entry, copied, by rendezvous.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

class MessageCounts : public testing::TestWithParam<Rendezvous> {};
INSTANTIATE_TEST_SUITE_P(By, MessageCounts, testing::Values(Rendezvous::kGet, Rendezvous::kPut),
                         [](const auto& info) {
                             return info.param == Rendezvous::kGet ? "rget" : "rput";
                         });

TEST_P(MessageCounts, AreOfTheWayThatEachWent) {
    Options options;
    options.rendezvous = GetParam();
    options.reuse.after = 0;
    End sender(options), receiver(options);
    const std::uint64_t to = sender.addresses.insert(receiver.endpoint->name());
    const std::uint64_t from = receiver.addresses.insert(sender.endpoint->name());
    std::vector<char> bytes(100'000, 'c'), room(100'000);
    const auto transfer = [&](std::size_t length) {
        bytes.resize(length);
        receiver.post(from, room, nullptr);
        sender.send(to, bytes);
        const bool arrived =
            until([&] { return !sender.transmit.empty() && !receiver.receive.empty(); },
                  {&sender, &receiver});
        ASSERT_TRUE(arrived) << length;
        sender.transmit.pop();
        receiver.receive.pop();
    };
    for (int i = 0; i < 4; ++i)
        transfer(100'000);
    for (int i = 0; i < 3; ++i)
        transfer(1000);
    for (int i = 0; i < 2; ++i)
        transfer(8);
    const EndpointCounts sent = sender.endpoint->counts();
    EXPECT_EQ(sent.rendezvous, 4U);
    EXPECT_EQ(sent.copied_by_size[EndpointCounts::size_index(1000)], 3U);
    EXPECT_EQ(sent.inlined, 2U);
}

}  // namespace
}  // namespace heddle::protocol::test
