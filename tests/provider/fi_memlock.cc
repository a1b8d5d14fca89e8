// SPDX-License-Identifier: BSD-2-Clause
// A process that may lock little memory (RLIMIT_MEMLOCK, without CAP_IPC_LOCK), on a software HCA
// that refuses what the kernel would (SOFTHCA_MEMLOCK=enforce): what is sent arrives, as what is
// kept registered makes room for what is needed; what cannot be registered is copied; and where
// that cannot be, the error says why. Each case in a process of its own (provider.memlock.*).
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "tests/endpoint/device_stat.h"
#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"
#include "tests/softhca/memlock_limit.h"
#include "tests/support/mapped_memory.h"

namespace heddle::test {
namespace {

constexpr std::size_t kPage = 4096, kLarge = 24 * kPage;
constexpr int kAfter = 8;  // uses

class Memlock : public testing::TestWithParam<const char*> {
protected:
    Memlock() {
        setenv("FI_HEDDLE_RNDV", GetParam(), 1);
        setenv("FI_HEDDLE_REUSE", std::to_string(kAfter).c_str(), 1);
        setenv("FI_HEDDLE_RECEIVE_MEMORY", "0", 1);
        setenv("FI_HEDDLE_RECEIVE_BUFFERS", "32", 1);  // the hard limit may be small, too
        limit.lift();
    }
    // Two endpoints that are connected, each way if nothing else is said, and then as many pages as
    // that for all else.
    void open(std::size_t pages, bool both_ways = true) {
        world.emplace();
        pair.emplace(*world);
        const std::uint64_t number = 1;
        transfer(*pair, &number, received, sizeof number, kLarge, 0);
        if (both_ways) send_back();
        const std::size_t pinned = device_stat()["pinned_bytes"];
        EXPECT_GT(pinned, 0);
        limit.set(pinned + pages * kPage);
    }
    void send_back() {
        ASSERT_EQ(
            fi_trecv(pair->a.ep.get(), received, kLarge, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
            0);
        const std::uint64_t number = 2;
        const auto send = [&] {
            return fi_tinject(pair->b.ep.get(), &number, sizeof number, pair->to_a, 1);
        };
        ASSERT_EQ(insist(pair->b.transmit.get(), send), 0);
        ASSERT_EQ(next(pair->a.receive.get(), entry, pair->b.receive.get()), 0);
        ASSERT_EQ(std::memcmp(received, &number, sizeof number), 0);
    }
    nlohmann::json closed() {
        pair.reset();
        world.reset();
        return statistics.read();
    }
    void send(std::byte* from, std::size_t bytes) {
        fill(from, bytes, ++sent_);
        transfer(*pair, from, received, bytes, kLarge, sent_);
    }
    static void fill(std::byte* to, std::size_t bytes, unsigned seed) {
        for (std::size_t i = 0; i < bytes; ++i)
            to[i] = static_cast<std::byte>(i * 31 + seed * 7 + (i >> 8));
    }
    // A message in steps: receive_into() posts the receive; sent() posts the send, and returns the
    // errno of its completion; received_whole() returns that of the receive.
    void receive_into(std::byte* to, std::size_t bytes) {
        ASSERT_EQ(fi_trecv(pair->b.ep.get(), to, bytes, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    }
    int sent(const std::byte* from, std::size_t bytes) {
        const auto send = [&] {
            return fi_tsend(pair->a.ep.get(), from, bytes, nullptr, pair->to_b, 1, nullptr);
        };
        EXPECT_EQ(insist(pair->a.transmit.get(), send), 0);
        return next(pair->a.transmit.get(), entry, pair->b.receive.get());
    }
    int received_whole() { return next(pair->b.receive.get(), entry, pair->a.transmit.get()); }

    fi_cq_tagged_entry entry{};
    Statistics statistics;
    softhca::test::MemlockLimit limit{std::size_t{64} << 10};
    std::byte* const received = map_some(kLarge);
    std::optional<World> world;
    std::optional<Pair> pair;

private:
    unsigned sent_ = 0;
};

// Frequent buffers of more pages than may be locked, and large messages between them, which find
// all that may be locked taken by those.
TEST_P(Memlock, IsEnoughForMessages) {
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kSmall = 120, kBuffers = 5;
    std::byte* const small = map_some(kSmall * kPage);
    std::byte* const large = map_some(kBuffers * kLarge);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < kAfter + 4; ++i)
            for (std::size_t n = 0; n < kSmall; ++n)
                ASSERT_NO_FATAL_FAILURE(send(small + n * kPage, 600));
        for (std::size_t n = 0; n < 4 * kBuffers; ++n)
            ASSERT_NO_FATAL_FAILURE(send(large + n % kBuffers * kLarge, kLarge));
    }
    const std::size_t pinned = device_stat()["pinned_bytes"];
    rlimit now{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &now), 0);
    EXPECT_LE(pinned, now.rlim_cur);
    munmap(small, kSmall * kPage);
    munmap(large, kBuffers * kLarge);
    const auto counts = closed();
    EXPECT_GT(counts["gathered"], 0);
    EXPECT_GT(counts["reuse_registered"], kSmall) << "those that made way are frequent again";
    EXPECT_GE(counts["rendezvous"], 3 * 4 * kBuffers);
    EXPECT_GT(counts["registration_evictions"], kSmall);
}

// A connection has a queue, whose pages count as well.
TEST_P(Memlock, IsEnoughForAnotherConnection) {
    constexpr std::size_t kSmall = 60, kBytes = 128;  // the receiver owes no credit for them
    setenv("FI_HEDDLE_INLINE_SIZE", "64", 1);
    ASSERT_NO_FATAL_FAILURE(open(40, false));
    std::byte* const small = map_some(kSmall * kPage);
    for (int i = 0; i < kAfter + 2; ++i)
        for (std::size_t n = 0; n < kSmall; ++n)
            ASSERT_NO_FATAL_FAILURE(send(small + n * kPage, kBytes));
    ASSERT_NO_FATAL_FAILURE(send_back());
    for (int i = 0; i < kAfter + 2; ++i)
        for (std::size_t n = 0; n < kSmall; ++n)
            ASSERT_NO_FATAL_FAILURE(send(small + n * kPage, kBytes));
    munmap(small, kSmall * kPage);
    const auto counts = closed();
    EXPECT_GT(counts["reuse_refused"], 0) << "all that may be locked was";
    EXPECT_GT(counts["registration_evictions"], 20);
}

// Memory that the program registers itself comes before what is merely kept.
TEST_P(Memlock, IsForTheProgramFirst) {
    ASSERT_NO_FATAL_FAILURE(open(5 * 24));
    std::byte* const large = map_some(4 * kLarge);
    for (int i = 0; i < 3; ++i)
        ASSERT_NO_FATAL_FAILURE(send(large, kLarge));  // it is kept, and so is where it arrives
    std::byte* const small = map_some(60 * kPage);
    for (int i = 0; i < kAfter + 4; ++i)
        for (std::size_t n = 0; n < 60; ++n)
            ASSERT_NO_FATAL_FAILURE(send(small + n * kPage, 600));
    const auto reg = [&](std::size_t bytes, Opened<fid_mr>& mr) {
        fid_mr* made = nullptr;
        const int result =
            fi_mr_reg(world->domain.get(), large, bytes, FI_REMOTE_WRITE, 0, 0, 0, &made, nullptr);
        if (result == 0) mr = Opened<fid_mr>(made);
        return result;
    };
    Opened<fid_mr> mr, more;
    ASSERT_EQ(reg(4 * kLarge, mr), 0);
    testing::internal::CaptureStderr();
    EXPECT_EQ(reg(2 * kLarge, more), -FI_ENOMEM);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("registering 196608 bytes"), std::string::npos) << log;
    EXPECT_NE(log.find("RLIMIT_MEMLOCK"), std::string::npos) << log;
    EXPECT_EQ(mr.close(), 0);
    ASSERT_NO_FATAL_FAILURE(send(large, kLarge));
    munmap(large, 4 * kLarge);
    munmap(small, 60 * kPage);
    EXPECT_GE(closed()["registration_evictions"], 2 + 60 - 24);
}

// What neither side can register. One line says so.
TEST_P(Memlock, ALargerMessageIsCopied) {
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kTooMuch = 8 * kLarge;
    std::byte* const from = map_some(kTooMuch);
    std::byte* const to = map_some(kTooMuch);
    testing::internal::CaptureStderr();
    for (unsigned round = 1; round <= 3; ++round) {
        fill(from, kTooMuch, round);
        ASSERT_NO_FATAL_FAILURE(receive_into(to, kTooMuch));
        EXPECT_EQ(sent(from, kTooMuch), 0);
        EXPECT_EQ(received_whole(), 0);
        EXPECT_EQ(entry.len, kTooMuch);
        EXPECT_EQ(std::memcmp(from, to, kTooMuch), 0) << "round " << round;
    }
    const std::string log = testing::internal::GetCapturedStderr();
    const std::size_t line = log.find("cannot be registered");
    EXPECT_NE(line, std::string::npos) << log;
    EXPECT_EQ(log.find("cannot be registered", line + 1), std::string::npos) << log;
    EXPECT_NE(log.find("RLIMIT_MEMLOCK"), std::string::npos) << log;
    ASSERT_NO_FATAL_FAILURE(send(from, kLarge));
    munmap(from, kTooMuch);
    munmap(to, kTooMuch);
    const auto counts = closed();
    EXPECT_EQ(counts["unregistered"], 3);
    EXPECT_EQ(counts["rendezvous"], 1) << "the message that fits";
}

// What the sender can register, and then the receiver cannot. By RPUT the sender would write there.
TEST_P(Memlock, ALargerReceiveIsCopiedInto) {
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kTooMuchForBoth = 60 * kPage;
    std::byte* const from = map_some(kTooMuchForBoth);
    std::byte* const to = map_some(kTooMuchForBoth);
    const bool by_put = std::string_view(GetParam()) == "rput";
    for (unsigned round = 1; round <= 3; ++round) {
        fill(from, kTooMuchForBoth, round);
        ASSERT_NO_FATAL_FAILURE(receive_into(to, kTooMuchForBoth));
        EXPECT_EQ(sent(from, kTooMuchForBoth), by_put ? FI_ENOMEM : 0);
        EXPECT_EQ(received_whole(), by_put ? FI_ENOMEM : 0);
        EXPECT_EQ(std::memcmp(from, to, kTooMuchForBoth) == 0, !by_put);
    }
    munmap(from, kTooMuchForBoth);
    munmap(to, kTooMuchForBoth);
    std::byte* const large = map_some(kLarge);
    for (int i = 0; i < 3; ++i)
        ASSERT_NO_FATAL_FAILURE(send(large, kLarge));
    munmap(large, kLarge);
    EXPECT_EQ(closed()["unregistered"], by_put ? 0 : 3);
}

// The target is registered, which leaves too little for the other side.
TEST_P(Memlock, RmaIsCopied) {
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kTooMuchForBoth = 60 * kPage;
    std::byte* const target = map_some(kTooMuchForBoth);
    std::byte* const mine = map_some(kTooMuchForBoth);
    auto mr = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world->domain.get(), target, kTooMuchForBoth,
                         FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, out, nullptr);
    });
    const auto at = reinterpret_cast<std::uint64_t>(target);
    const std::uint64_t key = fi_mr_key(mr.get());
    for (unsigned round = 1; round <= 3; ++round) {
        fill(mine, kTooMuchForBoth, round);
        ASSERT_EQ(insist(pair->a.transmit.get(),
                         [&] {
                             return fi_write(pair->a.ep.get(), mine, kTooMuchForBoth, nullptr,
                                             pair->to_b, at, key, nullptr);
                         }),
                  0);
        ASSERT_EQ(next(pair->a.transmit.get(), entry, pair->b.transmit.get()), 0);
        ASSERT_EQ(std::memcmp(mine, target, kTooMuchForBoth), 0) << "round " << round;
        fill(target, kTooMuchForBoth, round + 100);
        ASSERT_EQ(insist(pair->a.transmit.get(),
                         [&] {
                             return fi_read(pair->a.ep.get(), mine + 1, kTooMuchForBoth - 1,
                                            nullptr, pair->to_b, at, key, nullptr);
                         }),
                  0);
        ASSERT_EQ(next(pair->a.transmit.get(), entry, pair->b.transmit.get()), 0);
        ASSERT_EQ(std::memcmp(mine + 1, target, kTooMuchForBoth - 1), 0) << "round " << round;
    }
    munmap(mine, kTooMuchForBoth);
    EXPECT_EQ(mr.close(), 0);
    EXPECT_EQ(closed()["unregistered"], 6);
    munmap(target, kTooMuchForBoth);
}

// Only its FIN says that it has met its receive. What follows the error is none.
TEST_P(Memlock, IsNotEnoughForASynchronousMessage) {
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kTooMuch = 8 * kLarge;
    std::byte* const from = map_some(kTooMuch);
    testing::internal::CaptureStderr();
    const iovec buffer{from, kTooMuch};
    const fi_msg_tagged message{&buffer, nullptr, 1, pair->to_b, 1, 0, nullptr, 0};
    ASSERT_EQ(insist(pair->a.transmit.get(),
                     [&] {
                         return fi_tsendmsg(pair->a.ep.get(), &message,
                                            FI_COMPLETION | FI_MATCH_COMPLETE);
                     }),
              0);
    EXPECT_EQ(next(pair->a.transmit.get(), entry, pair->b.receive.get()), FI_ENOMEM);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("RLIMIT_MEMLOCK"), std::string::npos) << log;
    for (int i = 0; i < 3; ++i)
        ASSERT_NO_FATAL_FAILURE(send(from, kLarge));
    munmap(from, kTooMuch);
}

// What the device pages on demand is not pinned.
TEST_P(Memlock, DoesNotHoldForOnDemandPaging) {
    setenv("FI_HEDDLE_ODP", "yes", 1);
    ASSERT_NO_FATAL_FAILURE(open(3 * 24));
    constexpr std::size_t kMuch = 8 * kLarge;
    std::byte* const large = map_some(kMuch);
    std::byte* const to = map_some(kMuch);
    ASSERT_NO_FATAL_FAILURE(receive_into(to, kMuch));
    EXPECT_EQ(sent(large, kMuch), 0);
    EXPECT_EQ(received_whole(), 0);
    EXPECT_EQ(std::memcmp(large, to, kMuch), 0);
    std::byte* const small = map_some(200 * kPage);
    for (int i = 0; i < kAfter + 4; ++i)
        for (std::size_t n = 0; n < 200; ++n)
            ASSERT_NO_FATAL_FAILURE(send(small + n * kPage, 600));
    munmap(small, 200 * kPage);
    munmap(to, kMuch);
    munmap(large, kMuch);
    const auto counts = closed();
    EXPECT_EQ(counts["reuse_refused"], 0) << "nothing was pinned";
}

// The rest is for all else.
TEST_P(Memlock, IsHalfForWhatIsKept) {
    setenv("FI_HEDDLE_SEND_DEPTH", "64", 1);
    ASSERT_NO_FATAL_FAILURE(open(0));
    const std::size_t all_else = device_stat()["pinned_bytes"];
    const std::size_t may = 3 * all_else;
    closed();
    limit.set(may);
    world.emplace();
    pair.emplace(*world);
    const std::size_t buffers = may / kLarge;
    std::byte* const large = map_some(buffers * kLarge);
    for (std::size_t n = 0; n < buffers; ++n)
        for (int i = 0; i < 3; ++i)
            ASSERT_NO_FATAL_FAILURE(send(large + n * kLarge, kLarge));
    const std::size_t pinned = device_stat()["pinned_bytes"];
    EXPECT_LE(pinned, all_else + may / 2 + kLarge);
    EXPECT_GT(pinned, may / 2);
    munmap(large, buffers * kLarge);
}

// Which endpoint cannot be had, how much it asked for, and what the limit is.
TEST_P(Memlock, IsNotEnoughForAnEndpoint) {
    limit.set(64 << 10);
    World small;
    Station station(small);
    testing::internal::CaptureStderr();
    EXPECT_EQ(fi_enable(station.ep.get()), -FI_ENOMEM);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("RLIMIT_MEMLOCK"), std::string::npos) << log;
    EXPECT_NE(log.find("is 64 KiB"), std::string::npos) << log;
    EXPECT_NE(log.find(" bytes: Cannot allocate memory"), std::string::npos) << log;
    limit.lift();
    EXPECT_EQ(fi_enable(station.ep.get()), 0);
}

INSTANTIATE_TEST_SUITE_P(By, Memlock, testing::Values("rget", "rput"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test
