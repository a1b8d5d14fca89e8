// SPDX-License-Identifier: BSD-2-Clause
// Each call that sends and receives messages, through libfabric's interface: that its arguments
// arrive where they should. What happens to messages on their way is tested with the protocol.
#include <algorithm>
#include <thread>

#include "tests/provider/fi_transfers.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

TEST_F(Transfers, Messages) {
    const auto post = [&] { must([&] { return fi_recv(b, buffer, 256, nullptr, 0, nullptr); }); };
    auto message = two_buffers<fi_msg>();

    post();
    must([&] { return fi_send(a, "send", 4, nullptr, pair.to_b, &context); });
    expect_message("send", 0, true);
    post();
    must([&] { return fi_sendv(a, buffers, nullptr, 2, pair.to_b, &context); });
    expect_message("two buffers", 0, true);
    post();
    must([&] { return fi_senddata(a, "data", 4, nullptr, 12, pair.to_b, &context); });
    expect_message("data", 12, true);
    post();
    must([&] { return fi_inject(a, "inject", 6, pair.to_b); });
    expect_message("inject", 0, false);
    post();
    must([&] { return fi_injectdata(a, "injected", 8, 13, pair.to_b); });
    expect_message("injected", 13, false);
    iovec whole{buffer, sizeof buffer};
    must([&] { return fi_recvv(b, &whole, nullptr, 1, FI_ADDR_UNSPEC, nullptr); });
    must([&] { return fi_sendmsg(a, &message, FI_REMOTE_CQ_DATA | FI_INJECT); });
    expect_message("two buffers", 11, true);
    fi_msg into{};
    into.msg_iov = &whole;
    into.iov_count = 1;
    into.addr = FI_ADDR_UNSPEC;
    must([&] { return fi_recvmsg(b, &into, 0); });
    must([&] { return fi_sendmsg(a, &message, FI_DELIVERY_COMPLETE); });
    expect_message("two buffers", 0, true);
}

TEST_F(Transfers, TaggedMessages) {
    std::uint64_t tag = 0;
    const auto post = [&] {
        ++tag;
        must([&] { return fi_trecv(b, buffer, 256, nullptr, pair.to_a, tag, 0, nullptr); });
    };
    auto message = two_buffers<fi_msg_tagged>();

    post();
    must([&] { return fi_tsend(a, "send", 4, nullptr, pair.to_b, tag, &context); });
    expect_message("send", 0, true);
    post();
    must([&] { return fi_tsendv(a, buffers, nullptr, 2, pair.to_b, tag, &context); });
    expect_message("two buffers", 0, true);
    post();
    must([&] { return fi_tsenddata(a, "data", 4, nullptr, 12, pair.to_b, tag, &context); });
    expect_message("data", 12, true);
    post();
    must([&] { return fi_tinject(a, "inject", 6, pair.to_b, tag); });
    expect_message("inject", 0, false);
    post();
    must([&] { return fi_tinjectdata(a, "injected", 8, 13, pair.to_b, tag); });
    expect_message("injected", 13, false);
    post();
    message.tag = tag;
    must([&] { return fi_tsendmsg(a, &message, FI_REMOTE_CQ_DATA); });
    expect_message("two buffers", 11, true);

    iovec whole{buffer, sizeof buffer};
    must([&] { return fi_trecvv(b, &whole, nullptr, 1, FI_ADDR_UNSPEC, 1000, 0xff, nullptr); });
    must([&] { return fi_tinject(a, "masked", 6, pair.to_b, 1000 | 7); });
    expect_message("masked", 0, false);
    EXPECT_EQ(entry.tag, 1007u);
}

TEST_F(Transfers, Probe) {
    fi_msg_tagged probe{};
    probe.addr = FI_ADDR_UNSPEC;
    probe.tag = 9;
    probe.context = &context;
    must([&] { return fi_trecvmsg(b, &probe, FI_PEEK); });
    EXPECT_EQ(next(received, entry, sent), FI_ENOMSG) << "an error entry, not an error";
    must([&] { return fi_tinject(a, "found", 5, pair.to_b, 9); });
    const auto end = std::chrono::steady_clock::now() + kPatience;
    int result = FI_ENOMSG;
    while (result == FI_ENOMSG && std::chrono::steady_clock::now() < end) {
        must([&] { return fi_trecvmsg(b, &probe, FI_PEEK | FI_CLAIM); });
        result = next(received, entry, sent);
    }
    ASSERT_EQ(result, 0);
    EXPECT_EQ(entry.len, 5u);
    EXPECT_EQ(entry.op_context, &context);
    iovec whole{buffer, sizeof buffer};
    probe.msg_iov = &whole;
    probe.iov_count = 1;
    must([&] { return fi_trecvmsg(b, &probe, FI_CLAIM); });
    expect_message("found", 0, false);
    EXPECT_EQ(entry.tag, 9u);
}

// The entry of what is discarded says what it was: at once, or after it was claimed.
TEST_F(Transfers, Discarded) {
    fi_msg_tagged probe{};
    probe.addr = FI_ADDR_UNSPEC;
    probe.context = &context;
    const auto until_found = [&](std::uint64_t flags) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        int result = FI_ENOMSG;
        while (result == FI_ENOMSG && std::chrono::steady_clock::now() < end) {
            must([&] { return fi_trecvmsg(b, &probe, flags); });
            result = next(received, entry, sent);
        }
        ASSERT_EQ(result, 0);
    };
    const auto expect_entry = [&](std::size_t bytes) {
        EXPECT_EQ(entry.op_context, &context);
        EXPECT_EQ(entry.flags, FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA);
        EXPECT_EQ(entry.tag, probe.tag);
        EXPECT_EQ(entry.len, bytes);
        EXPECT_EQ(entry.data, 21u);
    };
    const std::vector<char> large(100000);  // by rendezvous
    for (const std::size_t bytes : {std::size_t{5}, large.size()}) {
        for (const bool claimed : {false, true}) {
            ++probe.tag;
            must([&] {
                return fi_tsenddata(a, large.data(), bytes, nullptr, 21, pair.to_b, probe.tag,
                                    nullptr);
            });
            until_found(claimed ? FI_PEEK | FI_CLAIM : FI_PEEK | FI_DISCARD);
            expect_entry(bytes);
            entry = {};
            if (claimed) {
                must([&] { return fi_trecvmsg(b, &probe, FI_CLAIM | FI_DISCARD); });
                ASSERT_EQ(next(received, entry, sent), 0);
                expect_entry(bytes);
            }
            must([&] { return fi_trecvmsg(b, &probe, FI_PEEK); });
            EXPECT_EQ(next(received, entry, sent), FI_ENOMSG) << "it is gone";
            ASSERT_EQ(next(sent, entry, received), 0) << "the end of its send is reported";
        }
    }
}

TEST_F(Transfers, MultiReceive) {
    std::vector<char> large(4096);
    std::size_t least = 256;
    ASSERT_EQ(fi_setopt(&b->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    iovec whole{large.data(), large.size()};
    fi_msg into{};
    into.msg_iov = &whole;
    into.iov_count = 1;
    into.addr = FI_ADDR_UNSPEC;
    into.context = &context;
    must([&] { return fi_recvmsg(b, &into, FI_MULTI_RECV); });
    std::size_t total = 0;
    for (int i = 0; i < 40; ++i) {
        const std::string text(100, static_cast<char>('a' + i % 26));
        must([&] { return fi_inject(a, text.data(), text.size(), pair.to_b); });
        ASSERT_EQ(next(received, entry, sent), 0);
        EXPECT_EQ(entry.op_context, &context);
        EXPECT_EQ(entry.buf, large.data() + total);
        EXPECT_EQ(std::string(static_cast<char*>(entry.buf), entry.len), text);
        total += entry.len;
        if ((entry.flags & FI_MULTI_RECV) != 0) break;
    }
    EXPECT_TRUE(entry.flags & FI_MULTI_RECV) << "the buffer is given back";
    EXPECT_GT(total, large.size() - least - 100);
}

// As few as there may be: they are given back to the device before it has none.
TEST(ReceiveBuffers, AreFew) {
    setenv("FI_HEDDLE_RECEIVE_BUFFERS", "16", 1);
    setenv("FI_HEDDLE_RECEIVE_MEMORY", "0", 1);
    World world;
    Pair pair(world);
    for (std::uint64_t i = 0; i < 200; ++i) {
        std::uint64_t in = 0;
        transfer(pair, &i, &in, sizeof i, sizeof in, i);
    }
}

// A peer that never reads a CQ answers all the same, where that was asked for.
TEST(AutomaticProgress, OfARendezvous) {
    const auto hints = [] {
        Info hints = usual_hints();
        hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
        return hints;
    };
    World first(hints()), second(hints());
    Station a(first), b(second, FI_WAIT_UNSPEC);
    a.enable();
    b.enable();
    const fi_addr_t to_b = a.add(b);
    b.add(a);
    std::vector<char> from(300'000, 'x'), to(300'000);
    ASSERT_EQ(fi_trecv(b.ep.get(), to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
              0);
    const auto send = [&] {
        return fi_tsend(a.ep.get(), from.data(), from.size(), nullptr, to_b, 1, nullptr);
    };
    ASSERT_EQ(insist(a.transmit.get(), send), 0);
    std::this_thread::sleep_for(500ms);  // neither side reads anything
    EXPECT_EQ(from, to);
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(b.receive.get(), &entry, 1, nullptr, 20'000), 1);
    EXPECT_EQ(next(a.transmit.get(), entry), 0);
}

TEST(Locks, AnyThreadMaySend) {
    Info hints = usual_hints();
    hints->domain_attr->threading = FI_THREAD_SAFE;
    World world(std::move(hints));
    Pair pair(world);
    constexpr int kThreads = 4, kMessages = 200;
    static std::uint64_t values[kThreads * kMessages];
    for (auto& value : values)
        ASSERT_EQ(fi_trecv(pair.b.ep.get(), &value, 8, nullptr, FI_ADDR_UNSPEC, 3, 0, nullptr), 0);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kMessages; ++i) {
                const std::uint64_t value = t * kMessages + i;
                EXPECT_EQ(
                    insist(pair.a.transmit.get(),
                           [&] { return fi_tinject(pair.a.ep.get(), &value, 8, pair.to_b, 3); }),
                    0);
            }
        });
    for (int i = 0; i < kThreads * kMessages; ++i) {
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(pair.b.receive.get(), entry), 0);
    }
    for (std::thread& each : threads)
        each.join();
    std::vector<bool> seen(kThreads * kMessages);
    for (const std::uint64_t value : values)
        seen.at(value) = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kThreads * kMessages);
}

}  // namespace
}  // namespace heddle::test
