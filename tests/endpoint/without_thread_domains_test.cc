// SPDX-License-Identifier: BSD-2-Clause
// Endpoints on a device whose driver has no thread domains: this program is linked with
// tests/support/without_thread_domains.c.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "heddle/endpoint.h"
#include "tests/endpoint/address_of.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

class WithoutThreadDomains : public testing::TestWithParam<Category> {};

TEST_P(WithoutThreadDomains, CategoryMovesBytes) {
    EndpointSet set("", GetParam(), 3);
    EXPECT_EQ(set.usage().thread_domains, 0u);
    const std::uint32_t n = set[0].qp_shared() ? 1 : set.size();  // one QP: connected once
    for (std::uint32_t t = 0; t < n; ++t) {
        Endpoint& e = set[t];
        e.connect(e.address());
        const std::uint64_t sent = 0x1234'5678'9abc'def0u + t;
        std::memcpy(e.buffer(), &sent, sizeof sent);
        const ibv_sge piece{address_of(e.buffer()), sizeof sent, e.mr()->lkey};
        post::WorkRequest work;
        work.opcode = post::Opcode::kWrite;
        work.flags = post::kSignaled;
        work.sges = {&piece, 1};
        work.remote_address = address_of(e.buffer() + 64);
        work.remote_key = e.mr()->rkey;
        ASSERT_EQ(e.post(work), post::Posted::kOk);
        post::Completion completion;
        while (e.poll(&completion, 1) == 0) {
        }
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        std::uint64_t got;
        std::memcpy(&got, e.buffer() + 64, sizeof got);
        EXPECT_EQ(got, sent);
    }
}

TEST_P(WithoutThreadDomains, QueuePairsAreThoseOfWhatItIsMadeAs) {
    const EndpointSet set("", GetParam(), 3), as("", made_on(device(), GetParam()), 3);
    EXPECT_EQ(set.usage().qps, as.usage().qps);
    EXPECT_EQ(set.usage().cqs, as.usage().cqs);
    EXPECT_EQ(set.usage().contexts, as.usage().contexts);
}

INSTANTIATE_TEST_SUITE_P(Each, WithoutThreadDomains, testing::ValuesIn(kCategories),
                         [](const auto& info) {
                             std::string text(name(info.param));
                             std::erase_if(text, [](char c) { return c == '-' || c == '+'; });
                             return text;
                         });

TEST(DeviceWithoutThreadDomains, IsSeen) {
    EXPECT_FALSE(device().thread_domains);
    EXPECT_EQ(made_on(device(), Category::kDynamic), Category::kStatic);
    EXPECT_EQ(made_on(device(), Category::kMpiEverywhere), Category::kMpiEverywhere);
    EXPECT_EQ(made_on(device(), Category::kMpiThreads), Category::kMpiThreads);
}

// If a caller requests the placement, the error says that the driver lacks it, not that UARs ran
// out.
TEST(DeviceWithoutThreadDomains, RefusesTheirPlacement) {
    Sharing sharing;
    sharing.placement = Placement::kIndependent;
    try {
        const EndpointSet set("", sharing, 1);
        FAIL() << "nothing was refused";
    } catch (const VerbsError& error) {
        EXPECT_EQ(error.error(), EOPNOTSUPP);
        EXPECT_THAT(error.what(), HasSubstr("the device's driver has no thread domains"));
        EXPECT_THAT(error.what(), Not(HasSubstr("UAR")));
    }
}

}  // namespace
}  // namespace heddle
