// SPDX-License-Identifier: BSD-2-Clause
// The port says how long an operation may be (ibv_port_attr::max_msg_sz).
// protocol.short.MessageLimit has a port that says less than others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

TEST(MessageLimit, IsThePorts) {
    const char* const reported = std::getenv("PORT_MAX_MESSAGE");
    const std::size_t limit = reported != nullptr ? std::stoul(reported) : std::size_t{1} << 30;
    End writer(Options{}), reader(Options{});
    EXPECT_EQ(reader.impl().channel->limits().max_message, limit);
    // By rendezvous, in several operations if the limit is low.
    std::vector<char> bytes(300'001), room(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>(i * 7 + i / 4096);
    reader.post(FI_ADDR_UNSPEC, room, &room);
    writer.send(writer.addresses.insert(reader.endpoint->name()), bytes);
    ASSERT_TRUE(until([&] { return !reader.receive.empty() && !writer.transmit.empty(); },
                      {&writer, &reader}));
    EXPECT_EQ(reader.receive.front().error, 0);
    EXPECT_EQ(room, bytes);
}

}  // namespace
}  // namespace heddle::protocol::test
