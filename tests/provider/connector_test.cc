// SPDX-License-Identifier: BSD-2-Clause
// Connections on demand: what they carry, that they come about whatever the network loses or
// repeats, and how they fail.
#include "protocol/connector.h"

#include <fcntl.h>

#include "tests/provider/connector_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;
using std::chrono::milliseconds;

class Transports : public testing::TestWithParam<bool> {
protected:
    bool xrc() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Connector, Transports, testing::Bool(),
                         [](const auto& info) { return info.param ? "Xrc" : "Rc"; });

TEST_P(Transports, ConnectWithinAProcess) {
    Peer a(xrc()), b(xrc());
    b.post_receive();
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
    EXPECT_EQ(b.connector->counts().targets, 1u);
    EXPECT_EQ(b.connector->counts().malformed, 0u);
    EXPECT_FALSE(b.connector->asker(0xffffff));
}

TEST_P(Transports, ConnectAcrossProcesses) {
    Child child([&](softhca::test::Channel& channel) {
        Peer b(xrc());
        b.post_receive();
        channel.send(b.name());
        const Name a = channel.receive<Name>();
        EXPECT_TRUE(b.receive(7, a));
        const auto back = b.connect(a);
        ASSERT_TRUE(b.wait(*back));
        EXPECT_TRUE(b.send(*back, 8));
        channel.meet();
    });
    Peer a(xrc());
    a.post_receive();
    const Name b = child.channel().receive<Name>();
    child.channel().send(a.name());
    const auto channel = a.connect(b);
    ASSERT_TRUE(a.wait(*channel));
    ASSERT_TRUE(a.send(*channel, 7));
    EXPECT_TRUE(a.receive(8, b));
    child.channel().meet();
    child.expect_success();
}

}  // namespace
}  // namespace heddle::protocol::test
