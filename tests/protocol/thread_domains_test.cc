// SPDX-License-Identifier: BSD-2-Clause
// The thread domains that endpoints take from the device, and that `heddle top` shows. A program
// that chooses no category gets two for each endpoint, as long as there are no more endpoints than
// cores, and one for each other endpoint.
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
