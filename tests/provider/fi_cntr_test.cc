// SPDX-License-Identifier: BSD-2-Clause
// Counters: set, added to, waited for, and bound to endpoints.
#include <thread>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

Info safe_hints() {
    Info hints = usual_hints();
    hints->domain_attr->threading = FI_THREAD_SAFE;
    return hints;
}

TEST(Counters, SetAndAddedTo) {
    World world;
    const auto counter = open_counter(world.domain.get());
    EXPECT_EQ(fi_cntr_read(counter.get()), 0u);
    EXPECT_EQ(fi_cntr_set(counter.get(), 5), 0);
    EXPECT_EQ(fi_cntr_add(counter.get(), 3), 0);
    EXPECT_EQ(fi_cntr_read(counter.get()), 8u);
    EXPECT_EQ(fi_cntr_readerr(counter.get()), 0u);
    EXPECT_EQ(fi_cntr_seterr(counter.get(), 2), 0);
    EXPECT_EQ(fi_cntr_adderr(counter.get(), 1), 0);
    EXPECT_EQ(fi_cntr_readerr(counter.get()), 3u);
    EXPECT_EQ(fi_cntr_read(counter.get()), 8u);
}

TEST(Counters, Waiting) {
    World world(safe_hints());
    const auto counter = open_counter(world.domain.get());
    EXPECT_EQ(fi_cntr_wait(counter.get(), 0, 0), 0);
    EXPECT_EQ(fi_cntr_wait(counter.get(), 1, 0), -FI_ETIMEDOUT);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_cntr_wait(counter.get(), 1, 50), -FI_ETIMEDOUT);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 49ms);
    std::thread other([&] {
        for (int i = 0; i < 3; ++i) {
            std::this_thread::sleep_for(20ms);
            fi_cntr_add(counter.get(), 1);
        }
    });
    EXPECT_EQ(fi_cntr_wait(counter.get(), 3, 20'000), 0);
    other.join();
    std::thread failing([&] {
        std::this_thread::sleep_for(20ms);
        fi_cntr_adderr(counter.get(), 1);
    });
    EXPECT_EQ(fi_cntr_wait(counter.get(), 100, 20'000), -FI_EAVAIL);
    failing.join();
}

TEST(Counters, NotWithoutAWaitObject) {
    World world;
    const auto counter = open_counter(world.domain.get(), FI_WAIT_NONE);
    EXPECT_EQ(fi_cntr_wait(counter.get(), 1, 0), -FI_EINVAL);
}

TEST(Counters, CountWhatEndpointsDo) {
    World world;
    const auto sent = open_counter(world.domain.get()), received = open_counter(world.domain.get());
    Station a(world), b(world);
    ASSERT_EQ(fi_ep_bind(a.ep.get(), sent.handle(), FI_SEND), 0);
    ASSERT_EQ(fi_ep_bind(b.ep.get(), received.handle(), FI_RECV), 0);
    EXPECT_EQ(fi_ep_bind(b.ep.get(), received.handle(), FI_RECV), -FI_EBUSY);
    EXPECT_EQ(fi_ep_bind(b.ep.get(), received.handle(), FI_MULTI_RECV), -FI_EBADFLAGS);
    a.enable();
    b.enable();
    const fi_addr_t to_b = a.add(b);
    b.add(a);
    char buffers[10][8];
    for (auto& buffer : buffers)
        ASSERT_EQ(fi_recv(b.ep.get(), buffer, 8, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    for (int i = 0; i < 10; ++i) {
        const auto send = [&] {
            return i % 2 == 0 ? fi_inject(a.ep.get(), "12345678", 8, to_b)
                              : fi_send(a.ep.get(), "12345678", 8, nullptr, to_b, nullptr);
        };
        ASSERT_EQ(insist(a.transmit.get(), send), 0);
    }
    EXPECT_EQ(fi_cntr_wait(received.get(), 10, 20'000), 0);
    EXPECT_EQ(fi_cntr_wait(sent.get(), 10, 20'000), 0);
    EXPECT_EQ(fi_cntr_read(sent.get()), 10u);
    EXPECT_EQ(fi_cntr_read(received.get()), 10u);
    for (int i = 0; i < 5; ++i) {
        fi_cq_tagged_entry entry;
        EXPECT_EQ(next(a.transmit.get(), entry), 0);
    }
}

}  // namespace
}  // namespace heddle::test
