// SPDX-License-Identifier: BSD-2-Clause
// Threads of every category move bytes on both paths, and endpoints that are not possible are
// refused with a reason.
#include "heddle/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/endpoint/address_of.h"

namespace heddle {
namespace {

using post::Opcode;
using post::Posted;
using post::WorkRequest;
using testing::HasSubstr;

constexpr std::uint32_t kThreads = 4, kMessages = 300;

// What each thread does: it writes growing numbers from the first half of its buffer to the second.
template <class SendQueue, class CompletionQueue>
void move_bytes(Endpoint& e, SendQueue& send, CompletionQueue& cq, std::uint32_t thread) {
    std::byte* const to = e.buffer() + 64;
    for (std::uint32_t i = 1; i <= kMessages; ++i) {
        const std::uint64_t value = std::uint64_t{thread} << 32 | i;
        std::memcpy(e.buffer(), &value, sizeof value);
        const ibv_sge piece{address_of(e.buffer()), sizeof value, e.mr()->lkey};
        WorkRequest work;
        work.opcode = Opcode::kWrite;
        work.flags = post::kSignaled | (i % 2 != 0 ? post::kInline : 0);
        work.sges = {&piece, 1};
        work.remote_address = address_of(to);
        work.remote_key = e.mr()->rkey;
        work.id = value;
        ASSERT_EQ(send.post_now(work), Posted::kOk);
        post::Completion completion;
        while (cq.poll(&completion, 1) == 0) {
        }
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        ASSERT_EQ(completion.id, value);
        std::uint64_t got;
        std::memcpy(&got, to, sizeof got);
        ASSERT_EQ(got, value);
    }
}

struct Case {
    Category category;
    Path path;
};

class Endpoints : public testing::TestWithParam<Case> {};

TEST_P(Endpoints, OfManyThreadsMoveBytes) {
    const auto [category, path] = GetParam();
    // One thread if the QP is shared: the layers above distribute the completions of several
    // threads.
    const std::uint32_t n = category == Category::kMpiThreads ? 1 : kThreads;
    EndpointOptions options;
    options.path = path;
    EndpointSet set("", category, n, options);
    for (std::uint32_t t = 0; t < n; ++t)
        set[t].connect(set[t].address());
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < n; ++t)
        threads.emplace_back([&, t] {
            Endpoint& e = set[t];
            e.visit([&](auto& queues) { move_bytes(e, queues.send(), queues.completions(), t); });
        });
    for (std::thread& thread : threads)
        thread.join();
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Category category : kCategories)
        for (const Path path : {Path::kVerbs, Path::kDirect})
            all.push_back({category, path});
    return all;
}

INSTANTIATE_TEST_SUITE_P(Each, Endpoints, testing::ValuesIn(cases()), [](const auto& info) {
    std::string text(name(info.param.category));
    std::erase_if(text, [](char c) { return c == '-' || c == '+'; });
    return text + (info.param.path == Path::kVerbs ? "Verbs" : "Direct");
});

// The kernel's rxe has no limit with 7 retries: it would never notice that a peer has died.
TEST(ConnectedEndpoint, GivesUpOnAPeerThatDoesNotAnswer) {
    EndpointSet set("", Category::kStatic, 1);
    set[0].connect(set[0].address());
    ibv_qp_attr attributes{};
    ibv_qp_init_attr ignored{};
    ASSERT_EQ(ibv_query_qp(set[0].qp(), &attributes, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &ignored),
              0);
    EXPECT_NE(attributes.timeout, 0);
    EXPECT_LT(attributes.retry_cnt, 7);
}

std::string refusal(const std::function<void()>& attempt) {
    try {
        attempt();
    } catch (const VerbsError& error) {
        return error.what();
    }
    return "nothing was refused";
}

TEST(Refused, NoThreads) {
    EXPECT_THAT(refusal([] { EndpointSet("", Category::kDynamic, 0); }),
                HasSubstr("possible is 1 or more"));
}

TEST(Refused, SharingThatDoesNotFit) {
    Sharing sharing;
    sharing.context = 2;
    sharing.pd = 4;
    EXPECT_THAT(refusal([&] { EndpointSet("", sharing, 8); }),
                HasSubstr("PD shared 4-way with context shared 2-way"));
    sharing = {};
    sharing.qp = 9;
    EXPECT_THAT(refusal([&] { EndpointSet("", sharing, 8); }), HasSubstr("possible are 1 to 8"));
    sharing = sharing_of(Category::kDynamic, 8);
    sharing.cq = sharing.qp = 2;
    EXPECT_THAT(refusal([&] { EndpointSet("", sharing, 8); }),
                HasSubstr("QPs shared 2-way in thread domains"));
}

TEST(Refused, MoreThanTheDeviceHas) {
    EndpointOptions options;
    options.depth = 1 << 20;
    const std::string text = refusal([&] { EndpointSet("", Category::kMpiThreads, 1, options); });
    EXPECT_THAT(text, HasSubstr("1048576"));
}

// 512 UAR pages for the thread domains of a context (static kernel), or the device's 8192.
TEST(Refused, MoreThreadDomainsThanThereAre) {
    const char* kernel = std::getenv("SOFTHCA_UAR");
    const bool is_static = kernel != nullptr && std::string(kernel) == "static";
    EndpointOptions options;
    options.depth = 1;
    const std::string text =
        refusal([&] { EndpointSet("", Category::k2xDynamic, is_static ? 600 : 5000, options); });
    EXPECT_THAT(text, HasSubstr("thread domain"));
    EXPECT_THAT(text, HasSubstr("mpi+threads"));
}

TEST(Refused, AnUnknownDevice) {
    EXPECT_THAT(refusal([] { EndpointSet("mlx5_7", Category::kDynamic, 1); }),
                HasSubstr("the devices are: mlx5_0"));
}

}  // namespace
}  // namespace heddle
