// SPDX-License-Identifier: BSD-2-Clause
// An endpoint is closed after its peer, which had never sent to it. Its last messages have been
// read, and nothing says so: by libibverbs only another message could, and nobody acknowledges
// that.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

class Leaving : public testing::TestWithParam<Transport> {};

std::string name_of_transport(const testing::TestParamInfo<Transport>& info) {
    return info.param == Transport::kXrc ? "xrc" : info.param == Transport::kRc ? "rc" : "dc";
}
INSTANTIATE_TEST_SUITE_P(By, Leaving,
                         testing::Values(Transport::kXrc, Transport::kRc, Transport::kDc),
                         name_of_transport);

TEST_P(Leaving, IsNotWaitedFor) {
    Options options;
    options.post = PostPath::kVerbs;
    options.transport = GetParam();
    // All tries for an acknowledgement take 7.5 s, and closing ends after 5 s at the latest.
    const auto patient = [&] { return std::make_unique<End>(std::make_shared<Domain>(options)); };
    auto stays = patient(), leaves = patient();
    const auto to = stays->addresses.insert(leaves->endpoint->name());
    std::vector<char> room(8);
    std::uint64_t value = 5;
    const iovec bytes{&value, sizeof value};
    for (int message = 0; message < 3; ++message) {
        leaves->post(FI_ADDR_UNSPEC, room, &room);
        ASSERT_EQ(stays->send(to, bytes, FI_INJECT), 0);
        ASSERT_TRUE(until([&] { return !leaves->receive.empty(); }, {stays.get(), leaves.get()}));
        leaves->receive.pop();
    }
    ASSERT_NE(stays->endpoint->state().under_way, 0U) << "the ends of the last are not known";
    leaves.reset();
    const auto start = std::chrono::steady_clock::now();
    stays.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

}  // namespace
}  // namespace heddle::protocol::test
