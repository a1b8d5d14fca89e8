// SPDX-License-Identifier: BSD-2-Clause
// Poll sets: which of several queues and counters has something.
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

TEST(PollSets, TellWhatIsReady) {
    World world;
    Pair pair(world);
    const auto counter = open_counter(world.domain.get());
    int queue_context = 0, counter_context = 0;
    pair.b.receive->fid.context = &queue_context;
    counter->fid.context = &counter_context;
    fi_poll_attr attributes{};
    auto set = opened<fid_poll>("fi_poll_open", [&](fid_poll** out) {
        return fi_poll_open(world.domain.get(), &attributes, out);
    });
    ASSERT_EQ(fi_poll_add(set.get(), pair.b.receive.handle(), 0), 0);
    ASSERT_EQ(fi_poll_add(set.get(), counter.handle(), 0), 0);
    EXPECT_EQ(fi_poll_add(set.get(), world.domain.handle(), 0), -FI_EINVAL);
    EXPECT_EQ(world.domain.close(), -FI_EBUSY);

    void* ready[2] = {};
    EXPECT_EQ(fi_poll(set.get(), ready, 2), 0);
    EXPECT_EQ(fi_cntr_add(counter.get(), 1), 0);
    EXPECT_EQ(fi_poll(set.get(), ready, 2), 1);
    EXPECT_EQ(ready[0], &counter_context);
    EXPECT_EQ(fi_poll(set.get(), ready, 2), 0) << "told once";

    char byte = 0;
    ASSERT_EQ(fi_recv(pair.b.ep.get(), &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    ASSERT_EQ(insist(pair.a.transmit.get(),
                     [&] { return fi_inject(pair.a.ep.get(), "x", 1, pair.to_b); }),
              0);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (fi_poll(set.get(), ready, 2) == 0 && std::chrono::steady_clock::now() < end) {
    }
    EXPECT_EQ(ready[0], &queue_context);
    EXPECT_EQ(fi_poll(set.get(), ready, 2), 1) << "until it is read";
    fi_cq_tagged_entry entry;
    EXPECT_EQ(next(pair.b.receive.get(), entry), 0);
    EXPECT_EQ(fi_poll(set.get(), ready, 2), 0);

    EXPECT_EQ(fi_poll_del(set.get(), counter.handle(), 0), 0);
    EXPECT_EQ(fi_poll_del(set.get(), counter.handle(), 0), -FI_EINVAL);
    EXPECT_EQ(set.close(), 0);
}

}  // namespace
}  // namespace heddle::test
