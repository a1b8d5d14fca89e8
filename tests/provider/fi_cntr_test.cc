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

// There is no CQ for sends, so FI_COMPLETION asks for what nobody could read.
TEST(Counters, CountSendsThatHaveNoCompletionQueue) {
    World world;
    const auto sent = open_counter(world.domain.get());
    Station receiver(world);
    receiver.enable();
    const auto av = open_av(world.domain.get());
    const auto cq = open_cq(world.domain.get(), FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    const auto ep = open_endpoint(world.domain.get(), world.info.get());
    ASSERT_EQ(fi_ep_bind(ep.get(), av.handle(), 0), 0);
    ASSERT_EQ(fi_ep_bind(ep.get(), sent.handle(), FI_SEND | FI_WRITE | FI_READ), 0);
    ASSERT_EQ(fi_ep_bind(ep.get(), cq.handle(), FI_RECV), 0);
    ASSERT_EQ(fi_enable(ep.get()), 0);
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_av_insert(av.get(), receiver.name, 1, &to, 0, nullptr), 1);
    std::vector<char> bytes(900), room(900);
    std::uint64_t count = 0;
    for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{FI_TRANSMIT_COMPLETE}})
        for (int again = 0; again < 3; ++again)
            for (const std::size_t length : {8u, 60u, 900u}) {
                const iovec piece{bytes.data(), length};
                fi_msg_tagged message{};
                message.msg_iov = &piece;
                message.iov_count = 1;
                message.addr = to;
                ASSERT_EQ(fi_trecv(receiver.ep.get(), room.data(), room.size(), nullptr,
                                   FI_ADDR_UNSPEC, 0, 0, nullptr),
                          0);
                const auto send = [&] {
                    return fi_tsendmsg(ep.get(), &message, FI_COMPLETION | flags);
                };
                ASSERT_EQ(insist(cq.get(), send), 0);
                fi_cq_tagged_entry entry;
                ASSERT_EQ(next(receiver.receive.get(), entry, cq.get()), 0);
                EXPECT_EQ(entry.len, length);
                EXPECT_EQ(fi_cntr_wait(sent.get(), ++count, 20'000), 0);
            }
}

}  // namespace
}  // namespace heddle::test
