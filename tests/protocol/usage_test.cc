// SPDX-License-Identifier: BSD-2-Clause
// The objects that endpoints take from the device, and that `heddle top` shows. A program that
// chooses no category gets two thread domains for each endpoint, as long as there are no more
// endpoints than cores, and one for each other endpoint.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "protocol/transport/domain.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

TEST(ThreadDomains, AreDoubledUpToTheCores) {
    const unsigned cores = std::thread::hardware_concurrency();
    std::vector<std::unique_ptr<End>> ends;
    std::vector<std::uint32_t> taken;
    std::uint32_t before = 0;
    for (unsigned i = 0; i < cores + 2; ++i) {
        ends.push_back(std::make_unique<End>(Options{}));
        const std::uint32_t now = ends.front()->domain->usage().thread_domains;
        taken.push_back(now - before);
        before = now;
    }
    const std::uint32_t single = taken.back();
    EXPECT_GT(single, 0U);
    for (unsigned i = 0; i < taken.size(); ++i)
        EXPECT_EQ(taken[i], i < cores ? 2 * single : single) << "endpoint " << i;
}

TEST(ObjectsOfAProcess, AreThoseOfItsEndpointsAndOfTheConnector) {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    End one(options);
    const Usage first = one.domain->usage();
    EXPECT_EQ(first.cqs, 2U) << "the endpoint's, and the connector's";
    EXPECT_EQ(first.qps, 1U) << "the connector's";
    End other(options);
    EXPECT_EQ(one.domain->usage().cqs, 3U);
    EXPECT_EQ(one.domain->usage().mrs, 2 * first.mrs);
    // A connection is a queue pair at its sender, and a target at the other end.
    std::vector<char> text(8, 't'), room(8);
    other.post(FI_ADDR_UNSPEC, room, &room);
    one.send(one.addresses.insert(other.endpoint->name()), text);
    ASSERT_TRUE(until([&] { return !other.receive.empty(); }, {&one, &other}));
    EXPECT_EQ(one.domain->usage().qps, first.qps + 2);
}

// Endpoints of that category have none. The connector's queue pair, which libmlx5 posts to, has one
// where theirs are posted to by the direct path: on a register that both use, writes would mix.
TEST(ThreadDomains, AreOfQueuePairsBesideTheDirectPath) {
    for (const bool direct : {true, false}) {
        Options options;
        options.endpoints = Category::kStatic;
        options.post = direct ? PostPath::kDirect : PostPath::kVerbs;
        const End end(options);
        EXPECT_EQ(end.domain->usage().thread_domains, direct ? 1U : 0U);
    }
}

}  // namespace
}  // namespace heddle::protocol::test
