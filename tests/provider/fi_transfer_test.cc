// SPDX-License-Identifier: BSD-2-Clause
// Each call that transfers, through libfabric's interface: that its arguments arrive where they
// should. What happens to messages on their way is tested with the protocol.
#include <algorithm>
#include <thread>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

class Transfers : public ::testing::Test {
protected:
    World world;
    Pair pair{world};
    fid_ep* a = pair.a.ep.get();
    fid_ep* b = pair.b.ep.get();
    fid_cq* sent = pair.a.transmit.get();
    fid_cq* received = pair.b.receive.get();
    fi_cq_tagged_entry entry{};
    int context = 0;

    template <class Call>
    void must(Call&& call) {
        ASSERT_EQ(insist(sent, call), 0);
    }
    // The message arrives. `reported`: its send completes with an entry (an injected one does not).
    void expect_message(const char* text, std::uint64_t data, bool reported) {
        entry = {};
        ASSERT_EQ(next(received, entry, sent), 0);
        EXPECT_EQ(std::string(buffer, entry.len), text);
        if (data != 0) {
            EXPECT_TRUE(entry.flags & FI_REMOTE_CQ_DATA);
            EXPECT_EQ(entry.data, data);
        } else {
            EXPECT_FALSE(entry.flags & FI_REMOTE_CQ_DATA);
        }
        if (reported) {
            ASSERT_EQ(next(sent, entry, received), 0);
            EXPECT_EQ(entry.op_context, &context);
        }
    }
    // For fi_sendmsg and fi_tsendmsg.
    template <class Message>
    Message two_buffers() {
        Message message{};
        message.msg_iov = buffers;
        message.iov_count = 2;
        message.addr = pair.to_b;
        message.context = &context;
        message.data = 11;
        return message;
    }
    iovec buffers[2] = {{const_cast<char*>("two "), 4}, {const_cast<char*>("buffers"), 7}};
    char buffer[256] = {};
};

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

class Memory : public Transfers {
protected:
    std::vector<std::uint64_t> target = std::vector<std::uint64_t>(64);
    Opened<fid_mr> region = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), target.data(), target.size() * 8,
                         FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, out, nullptr);
    });
    std::uint64_t key = fi_mr_key(region.get());
    std::uint64_t at(std::size_t index) {
        return reinterpret_cast<std::uintptr_t>(target.data() + index);
    }
    // For what is done by the peer's processor.
    void expect_done() {
        entry = {};
        ASSERT_EQ(next(sent, entry, received), 0);
        EXPECT_EQ(entry.op_context, &context);
    }
    void expect_value(std::size_t index, std::uint64_t value) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        volatile std::uint64_t* there = target.data() + index;
        while (*there != value && std::chrono::steady_clock::now() < end)
            fi_cq_read(received, nullptr, 0);
        EXPECT_EQ(*there, value);
    }
};

TEST_F(Memory, WritesAndReads) {
    std::uint64_t value = 1, other = 2;
    must([&] { return fi_write(a, &value, 8, nullptr, pair.to_b, at(0), key, &context); });
    expect_done();
    EXPECT_TRUE(entry.flags & FI_WRITE);
    expect_value(0, 1);
    iovec buffers[2] = {{&value, 8}, {&other, 8}};
    must([&] { return fi_writev(a, buffers, nullptr, 2, pair.to_b, at(1), key, &context); });
    expect_done();
    expect_value(2, 2);
    must([&] { return fi_inject_write(a, &other, 8, pair.to_b, at(3), key); });
    expect_value(3, 2);
    fi_rma_iov remote[2] = {{at(10), 8, key}, {at(20), 8, key}};
    fi_msg_rma message{};
    message.msg_iov = buffers;
    message.iov_count = 2;
    message.addr = pair.to_b;
    message.rma_iov = remote;
    message.rma_iov_count = 2;
    message.context = &context;
    must([&] { return fi_writemsg(a, &message, FI_DELIVERY_COMPLETE); });
    expect_done();
    expect_value(10, 1);
    expect_value(20, 2);

    std::uint64_t got[2] = {};
    must([&] { return fi_read(a, got, 16, nullptr, pair.to_b, at(1), key, &context); });
    expect_done();
    EXPECT_TRUE(entry.flags & FI_READ);
    EXPECT_EQ(got[0], 1u);
    EXPECT_EQ(got[1], 2u);
    iovec into[2] = {{&got[1], 8}, {&got[0], 8}};
    must([&] { return fi_readv(a, into, nullptr, 2, pair.to_b, at(1), key, &context); });
    expect_done();
    EXPECT_EQ(got[0], 2u);
    message.msg_iov = into;
    must([&] { return fi_readmsg(a, &message, 0); });
    expect_done();
    EXPECT_EQ(got[1], 1u);
}

TEST_F(Memory, WritesWithData) {
    std::uint64_t value = 5;
    must([&] { return fi_writedata(a, &value, 8, nullptr, 99, pair.to_b, at(0), key, &context); });
    expect_done();
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_TRUE(entry.flags & FI_REMOTE_WRITE);
    EXPECT_EQ(entry.op_context, nullptr);
    EXPECT_EQ(entry.data, 99u);
    EXPECT_EQ(entry.len, 8u);
    EXPECT_EQ(target[0], 5u);
    must([&] { return fi_inject_writedata(a, &value, 8, 100, pair.to_b, at(1), key); });
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_EQ(entry.data, 100u);
    EXPECT_EQ(entry.len, 8u);
    EXPECT_EQ(target[1], 5u);
    const std::vector<std::uint64_t> values(40, 6);
    iovec buffers[2] = {{const_cast<std::uint64_t*>(values.data()), 160},
                        {const_cast<std::uint64_t*>(values.data()), 80}};
    fi_rma_iov remote{at(2), 240, key};
    fi_msg_rma message{};
    message.msg_iov = buffers;
    message.iov_count = 2;
    message.addr = pair.to_b;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.data = 101;
    must([&] { return fi_writemsg(a, &message, FI_REMOTE_CQ_DATA); });
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_EQ(entry.data, 101u);
    EXPECT_EQ(entry.len, 240u);
    EXPECT_EQ(target[31], 6u);
}

// As with other providers; fabtests' fi_rdm_bw_mt gives the handle.
TEST_F(Memory, HandleIsItsDescriptor) {
    target[0] = 7;
    EXPECT_EQ(fi_mr_desc(region.get()), region.get());
    must([&] {
        return fi_read(a, target.data() + 32, 256, region.get(), pair.to_b, at(0), key, &context);
    });
    expect_done();
    EXPECT_EQ(target[32], 7u);
}

TEST_F(Memory, Atomics) {
    std::uint64_t value = 5, result = 0, compare = 5;
    must([&] {
        return fi_atomic(a, &value, 1, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, &context);
    });
    expect_done();
    expect_value(0, 5);
    must([&] { return fi_inject_atomic(a, &value, 1, pair.to_b, at(0), key, FI_UINT64, FI_SUM); });
    expect_value(0, 10);
    must([&] {
        return fi_fetch_atomic(a, &value, 1, nullptr, &result, nullptr, pair.to_b, at(0), key,
                               FI_UINT64, FI_SUM, &context);
    });
    expect_done();
    EXPECT_EQ(result, 10u);
    must([&] {
        return fi_fetch_atomic(a, nullptr, 1, nullptr, &result, nullptr, pair.to_b, at(0), key,
                               FI_UINT64, FI_ATOMIC_READ, &context);
    });
    expect_done();
    EXPECT_EQ(result, 15u);
    compare = 15;
    must([&] {
        return fi_compare_atomic(a, &value, 1, nullptr, &compare, nullptr, &result, nullptr,
                                 pair.to_b, at(0), key, FI_UINT64, FI_CSWAP, &context);
    });
    expect_done();
    EXPECT_EQ(result, 15u);
    expect_value(0, 5);
}

// What a region was not registered for is refused, and the connection stays.
TEST_F(Memory, AtomicsNeedTheAccess) {
    std::uint64_t value = 5, result = 0, there = 1;
    struct Attempt {
        std::uint64_t access;
        bool adds, reads, fetches;  // are possible
    };
    for (const Attempt each :
         {Attempt{0, false, false, false}, Attempt{FI_SEND | FI_RECV, false, false, false},
          Attempt{FI_REMOTE_READ, false, true, false}, Attempt{FI_REMOTE_WRITE, true, false, false},
          Attempt{FI_REMOTE_READ | FI_REMOTE_WRITE, true, true, true}}) {
        fid_mr* region = nullptr;
        ASSERT_EQ(fi_mr_reg(world.domain.get(), &there, sizeof there, each.access, 0, 0, 0, &region,
                            nullptr),
                  0);
        const auto address = reinterpret_cast<std::uint64_t>(&there);
        const std::uint64_t its_key = fi_mr_key(region);
        must([&] {
            return fi_atomic(a, &value, 1, nullptr, pair.to_b, address, its_key, FI_UINT64, FI_SUM,
                             &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.adds ? 0 : FI_EACCES) << each.access;
        must([&] {
            return fi_fetch_atomic(a, nullptr, 1, nullptr, &result, nullptr, pair.to_b, address,
                                   its_key, FI_UINT64, FI_ATOMIC_READ, &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.reads ? 0 : FI_EACCES) << each.access;
        must([&] {
            return fi_fetch_atomic(a, &value, 1, nullptr, &result, nullptr, pair.to_b, address,
                                   its_key, FI_UINT64, FI_SUM, &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.fetches ? 0 : FI_EACCES) << each.access;
        EXPECT_EQ(fi_close(&region->fid), 0);
    }
}

TEST_F(Memory, AtomicsOfSeveralBuffers) {
    std::uint32_t first[2] = {1, 2}, second[3] = {3, 4, 5}, results[5] = {};
    auto* there = reinterpret_cast<std::uint32_t*>(target.data());
    for (std::uint32_t i = 0; i < 5; ++i)
        there[i] = 100 * i;
    const fi_ioc operands[2] = {{{first}, 2}, {{second}, 3}};
    fi_ioc into[2] = {{{results}, 1}, {{results + 1}, 4}};
    must([&] {
        return fi_fetch_atomicv(a, operands, nullptr, 2, into, nullptr, 2, pair.to_b, at(0), key,
                                FI_UINT32, FI_SUM, &context);
    });
    expect_done();
    for (std::uint32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(results[i], 100 * i);
        EXPECT_EQ(there[i], 100 * i + i + 1);
    }
}

TEST_F(Memory, WhatCannotBe) {
    std::uint64_t values[64] = {};
    std::vector<char> large(129);
    EXPECT_EQ(fi_tinject(a, large.data(), 129, pair.to_b, 0), -FI_EMSGSIZE);
    EXPECT_EQ(fi_inject_write(a, large.data(), 129, pair.to_b, at(0), key), -FI_EMSGSIZE);
    EXPECT_EQ(fi_atomic(a, values, 0, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
              -FI_EINVAL);
    EXPECT_EQ(
        fi_atomic(a, values, 100'000, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
        -FI_EMSGSIZE);
    EXPECT_EQ(fi_atomic(a, values, 1, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_CSWAP, nullptr),
              -FI_EOPNOTSUPP);
    // Counts and lengths whose sum is 1 in 64 bits.
    const fi_ioc operands[2] = {{{values}, SIZE_MAX}, {{values}, 2}};
    EXPECT_EQ(
        fi_atomicv(a, operands, nullptr, 2, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
        -FI_EMSGSIZE);
    iovec endless[2] = {{values, SIZE_MAX}, {values, 2}};
    fi_msg injected{};
    injected.msg_iov = endless;
    injected.iov_count = 2;
    injected.addr = pair.to_b;
    EXPECT_EQ(fi_sendmsg(a, &injected, FI_INJECT), -FI_EMSGSIZE);
    iovec buffers[9] = {};
    EXPECT_EQ(fi_tsendv(a, buffers, nullptr, 9, pair.to_b, 0, nullptr), -FI_EINVAL);
    fi_msg message{};
    message.addr = pair.to_b;
    EXPECT_EQ(fi_sendmsg(a, &message, FI_FENCE), -FI_EBADFLAGS);
    EXPECT_EQ(fi_recvmsg(b, &message, FI_PEEK), -FI_EBADFLAGS);
}

// A peer that never reads a CQ answers all the same, where that was asked for.
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

// More than any device can take inline: what does not fit is copied.
struct LargeInjects {
    LargeInjects() { setenv("FI_HEDDLE_INJECT_SIZE", "1024", 1); }
};
class Injects : LargeInjects, public Memory {
protected:
    // Sizes around what devices can, and the ends.
    static constexpr std::size_t kSizes[] = {0, 1, 8, 60, 64, 128, 500, 900, 960, 1000, 1024};
    static std::vector<char> bytes_of(std::size_t size) {
        std::vector<char> bytes(size);
        for (std::size_t i = 0; i < size; ++i)
            bytes[i] = static_cast<char>(i * 7 + size);
        return bytes;
    }
};

TEST_F(Injects, MessagesOfEverySize) {
    for (const bool reported : {false, true}) {
        for (const std::size_t size : kSizes) {
            const std::vector<char> expected = bytes_of(size);
            std::vector<char> from = expected, to(1024);
            iovec piece{from.data(), size}, room{to.data(), to.size()};
            must([&] { return fi_trecv(b, to.data(), 1024, nullptr, pair.to_a, 5, 0, &room); });
            fi_msg_tagged message{};
            message.msg_iov = &piece;
            message.iov_count = 1;
            message.addr = pair.to_b;
            message.tag = 5;
            message.context = &context;
            if (reported)
                must([&] { return fi_tsendmsg(a, &message, FI_INJECT | FI_COMPLETION); });
            else
                must([&] { return fi_tinject(a, from.data(), size, pair.to_b, 5); });
            std::fill(from.begin(), from.end(), 'x');  // it is ours again
            entry = {};
            ASSERT_EQ(next(received, entry, sent), 0);
            ASSERT_EQ(entry.len, size);
            to.resize(size);
            EXPECT_EQ(to, expected) << size << " bytes";
            if (reported) {
                ASSERT_EQ(next(sent, entry, received), 0);
            }
        }
    }
}

TEST_F(Injects, WritesOfEverySize) {
    std::vector<char> into(1024);
    const auto own = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), into.data(), into.size(), FI_REMOTE_WRITE, 0, 0, 0,
                         out, nullptr);
    });
    for (const std::size_t size : kSizes) {
        if (size == 0) continue;
        const std::vector<char> expected = bytes_of(size);
        std::vector<char> from = expected;
        must([&] {
            return fi_inject_write(a, from.data(), size, pair.to_b,
                                   reinterpret_cast<std::uintptr_t>(into.data()),
                                   fi_mr_key(own.get()));
        });
        std::fill(from.begin(), from.end(), 'x');
        // The last byte comes last.
        const volatile char* const last = into.data() + size - 1;
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (*last != expected.back() && std::chrono::steady_clock::now() < end) {
            fi_cq_read(sent, nullptr, 0);
            fi_cq_read(received, nullptr, 0);
        }
        EXPECT_EQ(std::memcmp(into.data(), expected.data(), size), 0) << size << " bytes";
        std::fill(into.begin(), into.end(), static_cast<char>(expected.back() + 1));
    }
}

}  // namespace
}  // namespace heddle::test
