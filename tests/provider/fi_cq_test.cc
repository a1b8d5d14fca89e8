// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: formats, errors, sleeping readers, file descriptors.
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

template <class Entry>
struct FormatOf;
template <>
struct FormatOf<fi_cq_entry> {
    static constexpr fi_cq_format value = FI_CQ_FORMAT_CONTEXT;
};
template <>
struct FormatOf<fi_cq_msg_entry> {
    static constexpr fi_cq_format value = FI_CQ_FORMAT_MSG;
};
template <>
struct FormatOf<fi_cq_data_entry> {
    static constexpr fi_cq_format value = FI_CQ_FORMAT_DATA;
};
template <>
struct FormatOf<fi_cq_tagged_entry> {
    static constexpr fi_cq_format value = FI_CQ_FORMAT_TAGGED;
};

// One tagged message with data from a to b.
void send_one(Pair& pair, void* send_context, char* to, std::size_t room, void* receive_context) {
    static const char text[] = "eighteen are sent";
    ASSERT_EQ(fi_trecv(pair.b.ep.get(), to, room, nullptr, FI_ADDR_UNSPEC, 42, 0, receive_context),
              0);
    ASSERT_EQ(insist(pair.a.transmit.get(),
                     [&] {
                         return fi_tsenddata(pair.a.ep.get(), text, sizeof text, nullptr, 77,
                                             pair.to_b, 42, send_context);
                     }),
              0);
}

template <class Entry>
class Formats : public ::testing::Test {};
using AllFormats =
    ::testing::Types<fi_cq_entry, fi_cq_msg_entry, fi_cq_data_entry, fi_cq_tagged_entry>;
TYPED_TEST_SUITE(Formats, AllFormats);

TYPED_TEST(Formats, Fields) {
    World world;
    Pair pair(world, FI_WAIT_NONE, FormatOf<TypeParam>::value);
    char buffer[64] = "";
    int sent = 0, received = 0;
    send_one(pair, &sent, buffer, sizeof buffer, &received);
    TypeParam entry{};
    ASSERT_EQ(next(pair.b.receive.get(), entry), 0);
    EXPECT_STREQ(buffer, "eighteen are sent");
    EXPECT_EQ(entry.op_context, &received);
    if constexpr (requires { entry.flags; }) {
        EXPECT_EQ(entry.flags & (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA),
                  FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
        EXPECT_EQ(entry.len, 18u);
    }
    if constexpr (requires { entry.data; }) {
        EXPECT_EQ(entry.data, 77u);
    }
    if constexpr (requires { entry.tag; }) {
        EXPECT_EQ(entry.tag, 42u);
    }
    ASSERT_EQ(next(pair.a.transmit.get(), entry), 0);
    EXPECT_EQ(entry.op_context, &sent);
    if constexpr (requires { entry.flags; }) {
        EXPECT_EQ(entry.flags & (FI_SEND | FI_TAGGED), FI_SEND | FI_TAGGED);
    }
}

TEST(CompletionQueues, SeveralAtOnceAndTheirSources) {
    World world;
    Pair pair(world);
    char buffers[4][64];
    int contexts[4];
    for (int i = 0; i < 4; ++i)
        send_one(pair, nullptr, buffers[i], sizeof buffers[i], &contexts[i]);
    fi_cq_tagged_entry entries[4];
    fi_addr_t sources[4] = {99, 99, 99, 99};
    ssize_t total = 0;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (total < 4 && std::chrono::steady_clock::now() < end) {
        const ssize_t got = fi_cq_readfrom(pair.b.receive.get(), entries + total,
                                           static_cast<std::size_t>(4 - total), sources + total);
        if (got > 0)
            total += got;
        else
            ASSERT_EQ(got, -FI_EAGAIN);
    }
    ASSERT_EQ(total, 4);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(entries[i].op_context, &contexts[i]) << "in the order they were posted in";
        EXPECT_EQ(sources[i], pair.to_a);
    }
}

TEST(CompletionQueues, ErrorsComeFirst) {
    World world;
    Pair pair(world);
    char small[4];
    int context = 0;
    send_one(pair, nullptr, small, sizeof small, &context);
    fi_cq_tagged_entry entry;
    ssize_t got = -FI_EAGAIN;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (got == -FI_EAGAIN && std::chrono::steady_clock::now() < end)
        got = fi_cq_read(pair.b.receive.get(), &entry, 1);
    ASSERT_EQ(got, -FI_EAVAIL);
    EXPECT_EQ(fi_cq_read(pair.b.receive.get(), &entry, 1), -FI_EAVAIL) << "until it is read";
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(pair.b.receive.get(), &error, 0), 1);
    EXPECT_EQ(error.op_context, &context);
    EXPECT_EQ(error.err, FI_ETRUNC);
    EXPECT_EQ(error.olen, 18u - sizeof small);
    EXPECT_EQ(error.tag, 42u);
    EXPECT_EQ(error.err_data_size, 0u);
    EXPECT_NE(fi_cq_strerror(pair.b.receive.get(), error.prov_errno, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(fi_cq_readerr(pair.b.receive.get(), &error, 0), -FI_EAGAIN);
    EXPECT_EQ(fi_cq_read(pair.b.receive.get(), &entry, 1), -FI_EAGAIN);
}

// Entries that a reader gets as they come stand in one row with those that wait in the queue,
// before and behind an error.
TEST(CompletionQueues, OneRowWhateverComes) {
    World world;
    Pair pair(world);
    constexpr int kMessages = 40, kShort = 7;  // each seventh does not fit
    char buffers[kMessages][64];
    int contexts[kMessages];
    int read = 0;
    for (int burst = 1; read < kMessages; burst = burst % 6 + 1) {
        const int until = std::min(kMessages, read + burst);
        for (int i = read; i < until; ++i)
            send_one(pair, nullptr, buffers[i], i % kShort == kShort - 1 ? 4 : sizeof buffers[i],
                     &contexts[i]);
        const auto end = std::chrono::steady_clock::now() + kPatience;
        for (std::size_t room = 1; read < until && std::chrono::steady_clock::now() < end;
             room = room % 4 + 1) {
            fi_cq_tagged_entry entries[4] = {};
            const ssize_t got = fi_cq_read(pair.b.receive.get(), entries, room);
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry error{};
                ASSERT_EQ(fi_cq_readerr(pair.b.receive.get(), &error, 0), 1);
                ASSERT_EQ(error.op_context, &contexts[read]);
                ASSERT_EQ(read % kShort, kShort - 1);
                ++read;
            } else if (got > 0) {
                ASSERT_LE(got, static_cast<ssize_t>(room));
                for (ssize_t i = 0; i < got; ++i, ++read) {
                    ASSERT_EQ(entries[i].op_context, &contexts[read]);
                    ASSERT_EQ(entries[i].len, 18u);
                    ASSERT_NE(read % kShort, kShort - 1);
                }
            } else {
                ASSERT_EQ(got, -FI_EAGAIN);
                fi_cq_tagged_entry sent[8];
                fi_cq_read(pair.a.transmit.get(), sent, 8);
            }
        }
        ASSERT_EQ(read, until);
    }
}

TEST(CompletionQueues, CancelledReceive) {
    World world;
    Pair pair(world);
    char buffer[8];
    int context = 0, other = 0;
    ASSERT_EQ(
        fi_trecv(pair.b.ep.get(), buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, 1, 0, &context),
        0);
    EXPECT_EQ(fi_cancel(pair.b.ep.handle(), &other), -FI_ENOENT);
    EXPECT_EQ(fi_cancel(pair.b.ep.handle(), &context), 0);
    fi_cq_tagged_entry entry;
    EXPECT_EQ(next(pair.b.receive.get(), entry), FI_ECANCELED);
}

TEST(CompletionQueues, SelectiveCompletion) {
    World world;
    Pair pair(world, FI_WAIT_NONE, FI_CQ_FORMAT_TAGGED, FI_SELECTIVE_COMPLETION);
    char buffers[3][64];
    int quiet = 0, loud = 0;
    send_one(pair, &quiet, buffers[0], sizeof buffers[0], nullptr);
    const char text[] = "told";
    iovec iov{const_cast<char*>(text), sizeof text};
    fi_msg_tagged message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = pair.to_b;
    message.tag = 42;
    message.context = &loud;
    ASSERT_EQ(fi_trecv(pair.b.ep.get(), buffers[1], 64, nullptr, FI_ADDR_UNSPEC, 42, 0, nullptr),
              0);
    ASSERT_EQ(insist(pair.a.transmit.get(),
                     [&] { return fi_tsendmsg(pair.a.ep.get(), &message, FI_COMPLETION); }),
              0);
    fi_cq_tagged_entry entry;
    ASSERT_EQ(next(pair.b.receive.get(), entry, pair.a.transmit.get()), 0);
    ASSERT_EQ(next(pair.b.receive.get(), entry, pair.a.transmit.get()), 0);
    ASSERT_EQ(next(pair.a.transmit.get(), entry), 0);
    EXPECT_EQ(entry.op_context, &loud);
    EXPECT_EQ(fi_cq_read(pair.a.transmit.get(), &entry, 1), -FI_EAGAIN);
}

TEST(SleepingReaders, NotWithoutAWaitObject) {
    World world;
    const auto cq = open_cq(world.domain.get());
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(cq.get(), &entry, 1, nullptr, 0), -FI_EINVAL);
    EXPECT_EQ(fi_cq_signal(cq.get()), -FI_EINVAL);
    fid* handles[] = {cq.handle()};
    EXPECT_EQ(fi_trywait(world.fabric.get(), handles, 1), -FI_EINVAL);
}

TEST(SleepingReaders, Timeout) {
    World world;
    Pair pair(world, FI_WAIT_UNSPEC);
    fi_cq_tagged_entry entry;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_cq_sread(pair.a.receive.get(), &entry, 1, nullptr, 100), -FI_EAGAIN);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 99ms);
    EXPECT_EQ(fi_cq_sread(pair.a.receive.get(), &entry, 1, nullptr, 0), -FI_EAGAIN);
}

// A domain of its own for each side, so that only the device can wake the sleeper.
struct TwoDomains {
    static Info hints(fi_threading level) {
        Info hints = usual_hints();
        hints->domain_attr->threading = level;
        return hints;
    }
    explicit TwoDomains(fi_wait_obj wait, fi_threading level = FI_THREAD_DOMAIN)
        : first(hints(level)), second(hints(level)), a(first, wait), b(second, wait) {
        a.enable();
        b.enable();
        to_b = a.add(b);
        to_a = b.add(a);
    }
    void send(const char* text, std::size_t bytes) {
        ASSERT_EQ(
            insist(a.transmit.get(),
                   [&] { return fi_tsend(a.ep.get(), text, bytes, nullptr, to_b, 5, nullptr); }),
            0);
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(a.transmit.get(), entry), 0);
    }
    World first, second;
    Station a, b;
    fi_addr_t to_a, to_b;
};

TEST(SleepingReaders, WokenByAMessage) {
    TwoDomains two(FI_WAIT_UNSPEC);
    for (const std::size_t bytes : {8u, 4000u, 100'000u}) {
        std::vector<char> sent(bytes, 's'), received(bytes);
        ASSERT_EQ(fi_trecv(two.b.ep.get(), received.data(), bytes, nullptr, FI_ADDR_UNSPEC, 5, 0,
                           nullptr),
                  0);
        std::thread sender([&] {
            std::this_thread::sleep_for(50ms);
            two.send(sent.data(), bytes);
        });
        fi_cq_tagged_entry entry{};
        EXPECT_EQ(fi_cq_sread(two.b.receive.get(), &entry, 1, nullptr, 20'000), 1) << bytes;
        EXPECT_EQ(entry.len, bytes);
        sender.join();
        EXPECT_EQ(sent, received);
    }
}

// Each look before it sleeps arms the device's queue; most of these bring no event.
TEST(SleepingReaders, WokenByAMessageAfterTimeouts) {
    TwoDomains two(FI_WAIT_UNSPEC);
    char received[8];
    for (int timeouts = 0; timeouts < 7; ++timeouts) {
        ASSERT_EQ(fi_trecv(two.b.ep.get(), received, sizeof received, nullptr, FI_ADDR_UNSPEC, 5, 0,
                           nullptr),
                  0);
        fi_cq_tagged_entry entry{};
        for (int i = 0; i < timeouts; ++i)
            EXPECT_EQ(fi_cq_sread(two.b.receive.get(), &entry, 1, nullptr, 1), -FI_EAGAIN);
        std::thread sender([&] {
            std::this_thread::sleep_for(50ms);
            two.send("1234567", 8);
        });
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(fi_cq_sread(two.b.receive.get(), &entry, 1, nullptr, 20'000), 1);
        // It looks once more when the time is over.
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s)
            << "not woken after " << timeouts << " timeouts";
        sender.join();
    }
}

TEST(SleepingReaders, WokenBySignal) {
    World world(TwoDomains::hints(FI_THREAD_SAFE));
    Pair pair(world, FI_WAIT_UNSPEC);
    std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(fi_cq_signal(pair.a.receive.get()), 0);
    });
    fi_cq_tagged_entry entry;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_cq_sread(pair.a.receive.get(), &entry, 1, nullptr, 20'000), -FI_EAGAIN);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    other.join();
}

// What another thread's progress put into the queue wakes its sleeper, too.
TEST(SleepingReaders, WokenByAnotherThread) {
    World world(TwoDomains::hints(FI_THREAD_SAFE));
    Pair pair(world, FI_WAIT_UNSPEC);
    char buffer[64];
    std::atomic<bool> done{false};
    std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        send_one(pair, nullptr, buffer, sizeof buffer, nullptr);
        fi_cq_tagged_entry entry;
        while (!done)
            if (fi_cq_read(pair.a.transmit.get(), &entry, 1) == -FI_EAGAIN)
                std::this_thread::yield();
    });
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(pair.b.receive.get(), &entry, 1, nullptr, 20'000), 1);
    EXPECT_EQ(entry.len, 18u);
    done = true;
    other.join();
}

TEST(SleepingReaders, FileDescriptor) {
    TwoDomains two(FI_WAIT_FD);
    int fd = -1;
    ASSERT_EQ(fi_control(two.b.receive.handle(), FI_GETWAIT, &fd), 0);
    char buffer[8];
    ASSERT_EQ(
        fi_trecv(two.b.ep.get(), buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr), 0);
    std::thread sender([&] {
        std::this_thread::sleep_for(50ms);
        two.send("1234567", 8);
    });
    fid* handles[] = {two.b.receive.handle()};
    fi_cq_tagged_entry entry{};
    ssize_t got = -FI_EAGAIN;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (got == -FI_EAGAIN && std::chrono::steady_clock::now() < end) {
        if (fi_trywait(two.second.fabric.get(), handles, 1) == 0) {
            pollfd wanted{fd, POLLIN, 0};
            EXPECT_EQ(poll(&wanted, 1, 20'000), 1);
        }
        got = fi_cq_read(two.b.receive.get(), &entry, 1);
    }
    EXPECT_EQ(got, 1);
    EXPECT_EQ(entry.len, 8u);
    sender.join();
}

// A thread polls for an operation that only the peer can complete. It still yields the processor to
// another thread that wants it. Open MPI's blocking sends poll without a yield of their own.
TEST(Pollers, GiveWay) {
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    World world;
    Pair pair(world);
    std::vector<char> large(1 << 20);
    ASSERT_EQ(insist(pair.a.transmit.get(),
                     [&] {
                         return fi_tsend(pair.a.ep.get(), large.data(), large.size(), nullptr,
                                         pair.to_b, 42, nullptr);
                     }),
              0);
    if (sched_setaffinity(0, sizeof one, &one) != 0) GTEST_SKIP() << "no processor can be chosen";
    std::atomic<bool> done{false};
    std::atomic<int> turns{0};
    std::thread other([&] {  // on the same processor: it inherits the set
        while (!done) {
            ++turns;
            std::this_thread::yield();
        }
    });
    fi_cq_tagged_entry entry;
    // Without a yield, a time slice for each turn: 25000 reads and more, of 35 ns. With yields,
    // 350 to 6700 were seen: it depends on when the kernel lets the other have a turn.
    constexpr int kTurns = 200, kMostEntries = 15000 * kTurns;
    int reads = 0;
    for (; turns < kTurns && reads < kMostEntries; ++reads)
        ASSERT_EQ(fi_cq_read(pair.a.transmit.get(), &entry, 1), -FI_EAGAIN);
    EXPECT_GE(turns, kTurns) << "in " << reads << " reads of an empty queue";
    done = true;
    other.join();
    sched_setaffinity(0, sizeof before, &before);
}

TEST(SleepingReaders, Threshold) {
    World world(TwoDomains::hints(FI_THREAD_SAFE));
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_TAGGED;
    attributes.wait_obj = FI_WAIT_UNSPEC;
    attributes.wait_cond = FI_CQ_COND_THRESHOLD;
    const auto cq = opened<fid_cq>("fi_cq_open", [&](fid_cq** out) {
        return fi_cq_open(world.domain.get(), &attributes, out, nullptr);
    });
    fi_cq_tagged_entry entries[2];
    EXPECT_EQ(fi_cq_sread(cq.get(), entries, 2, reinterpret_cast<const void*>(2), 20), -FI_EAGAIN);
}

}  // namespace
}  // namespace heddle::test
