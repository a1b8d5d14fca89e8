// SPDX-License-Identifier: BSD-2-Clause
// Long messages over several ports: how they are divided, what of them arrives, and a port that
// fails meanwhile. `softhca run --devices 2 --ports 2`, with FI_HEDDLE_RAILS=4.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::size_t kRailSize = 128 << 10;  // the default of FI_HEDDLE_RAIL_SIZE
constexpr std::size_t kRails = 4;

// Bytes that the contexts with QPs have moved, one for each rail: the endpoints' own port first.
std::vector<double> moved_by_rails() {
    const std::string command = "env -u LD_PRELOAD " HEDDLE_TEST_SOFTHCA " stat --json";
    std::FILE* const output = popen(command.c_str(), "r");
    EXPECT_NE(output, nullptr) << command;
    if (output == nullptr) return {};
    const auto fabric = nlohmann::json::parse(output, nullptr, false);
    EXPECT_EQ(pclose(output), 0) << command;
    std::vector<double> moved;
    for (const auto& context : fabric.value("contexts", nlohmann::json::array()))
        if (context["qps"] != 0) moved.push_back(context["counters"]["bytes_sent"]);
    return moved;
}

// The same since `before`.
std::vector<double> moved_since(const std::vector<double>& before) {
    std::vector<double> moved = moved_by_rails();
    EXPECT_EQ(moved.size(), before.size());
    for (std::size_t k = 0; k < std::min(moved.size(), before.size()); ++k)
        moved[k] -= before[k];
    return moved;
}

std::vector<char> random_text(std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<char> text(bytes);
    std::generate(text.begin(), text.end(), [&] { return static_cast<char>(random()); });
    return text;
}

class Rails : public testing::Test {
protected:
    // With each message whose number is in its pages.
    void exchange(std::size_t bytes, std::uint64_t first, std::uint64_t count) {
        std::vector<char> from = random_text(bytes, 1), to(bytes);
        for (std::uint64_t number = first; number < first + count; ++number) {
            for (std::size_t at = 0; at + sizeof number <= bytes; at += 4096)
                std::memcpy(from.data() + at, &number, sizeof number);
            ASSERT_NO_FATAL_FAILURE(transfer(*pair_, from.data(), to.data(), bytes, bytes, number));
        }
    }
    // The other rails are used from the first message on that finds them connected.
    void connect() {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        ASSERT_NO_FATAL_FAILURE(exchange(kRailSize, 0, 1));
        for (bool all = false; !all;) {
            ASSERT_LT(std::chrono::steady_clock::now(), end) << "some rails are not used";
            const auto before = moved_by_rails();
            ASSERT_EQ(before.size(), kRails);
            ASSERT_NO_FATAL_FAILURE(exchange(kRailSize, 0, 1));
            const auto moved = moved_since(before);
            all = std::ranges::all_of(moved, [](double bytes) { return bytes >= kRailSize / 8.0; });
        }
    }
    // The provider's counts, after the end.
    nlohmann::json counts() {
        pair_.reset();
        world_.reset();
        return statistics_.read();
    }

    Statistics statistics_;
    std::unique_ptr<World> world_ = std::make_unique<World>();
    std::unique_ptr<Pair> pair_ = std::make_unique<Pair>(*world_);
};

TEST_F(Rails, HaveALongMessageInEqualParts) {
    ASSERT_NO_FATAL_FAILURE(connect());
    constexpr std::size_t kBytes = 1 << 20, kMessages = 64;
    const auto before = moved_by_rails();
    ASSERT_NO_FATAL_FAILURE(exchange(kBytes, 1, kMessages));
    const auto moved = moved_since(before);
    const double sum = std::accumulate(moved.begin(), moved.end(), 0.0);
    EXPECT_GE(sum, double{kBytes} * kMessages);
    EXPECT_LE(sum, 1.05 * double{kBytes} * kMessages) << "a part was read twice";
    for (const double bytes : moved) {
        EXPECT_GE(bytes, 0.23 * sum);
        EXPECT_LE(bytes, 0.27 * sum);
    }
    const auto seen = counts();
    EXPECT_GE(seen["striped"], kMessages);
    EXPECT_EQ(seen["stripes_again"], 0);
}

TEST_F(Rails, AreNotForShorterMessages) {
    ASSERT_NO_FATAL_FAILURE(connect());
    const auto before = moved_by_rails();
    ASSERT_NO_FATAL_FAILURE(exchange(kRailSize - 1, 1, 8));
    const auto moved = moved_since(before);
    EXPECT_GE(moved.front(), 8.0 * (kRailSize - 1));
    EXPECT_EQ(std::ranges::count(moved, 0.0), kRails - 1);
}

// Both sides have several buffers, which end anywhere; some receives are too short.
TEST_F(Rails, ReadFromAndIntoSeveralBuffers) {
    ASSERT_NO_FATAL_FAILURE(connect());
    std::mt19937 random(7);
    const auto below = [&](std::size_t end) { return random() % end; };
    const auto cut = [&](std::vector<char>& memory, std::size_t bytes) {
        std::vector<iovec> parts;
        std::size_t at = 0;
        for (std::size_t left = bytes; left != 0;) {
            const std::size_t part = parts.size() == 3 ? left : 1 + below(left);
            parts.push_back({memory.data() + at, part});
            at += part;
            left -= part;
        }
        return parts;
    };
    for (unsigned round = 0; round < 200; ++round) {
        const std::size_t bytes = kRailSize + below(kRailSize * 4);
        const std::size_t room = round % 4 == 3 ? kRailSize + below(bytes - kRailSize + 1) : bytes;
        std::vector<char> from = random_text(bytes, round), to(room, '.');
        const auto sources = cut(from, bytes), destinations = cut(to, room);
        fi_msg_tagged receive{};
        receive.msg_iov = destinations.data();
        receive.iov_count = destinations.size();
        receive.addr = FI_ADDR_UNSPEC;
        ASSERT_EQ(fi_trecvmsg(pair_->b.ep.get(), &receive, FI_COMPLETION), 0);
        fi_msg_tagged send{};
        send.msg_iov = sources.data();
        send.iov_count = sources.size();
        send.addr = pair_->to_b;
        ASSERT_EQ(insist(pair_->a.transmit.get(),
                         [&] { return fi_tsendmsg(pair_->a.ep.get(), &send, FI_COMPLETION); }),
                  0);
        fi_cq_tagged_entry entry;
        const int error = next(pair_->b.receive.get(), entry, pair_->a.transmit.get());
        ASSERT_EQ(error, room < bytes ? FI_ETRUNC : 0) << "round " << round;
        ASSERT_EQ(next(pair_->a.transmit.get(), entry, pair_->b.receive.get()), 0);
        ASSERT_TRUE(std::equal(to.begin(), to.end(), from.begin())) << "round " << round;
    }
    EXPECT_GE(counts()["striped"], 200);
}

// A reader sleeps until the last rail has brought its part.
TEST_F(Rails, WakeASleepingReader) {
    pair_ = std::make_unique<Pair>(*world_, FI_WAIT_UNSPEC);
    ASSERT_NO_FATAL_FAILURE(connect());
    std::vector<char> to(1 << 20);
    for (unsigned round = 0; round < 50; ++round) {
        const std::vector<char> from = random_text(to.size(), round);
        ASSERT_EQ(fi_trecv(pair_->b.ep.get(), to.data(), to.size(), nullptr, FI_ADDR_UNSPEC, 1, 0,
                           nullptr),
                  0);
        ASSERT_EQ(insist(pair_->a.transmit.get(),
                         [&] {
                             return fi_tsend(pair_->a.ep.get(), from.data(), from.size(), nullptr,
                                             pair_->to_b, 1, nullptr);
                         }),
                  0);
        fi_cq_tagged_entry entry;
        constexpr int kMilliseconds = 20'000;
        ASSERT_EQ(fi_cq_sread(pair_->b.receive.get(), &entry, 1, nullptr, kMilliseconds), 1);
        ASSERT_EQ(fi_cq_sread(pair_->a.transmit.get(), &entry, 1, nullptr, kMilliseconds), 1);
        ASSERT_EQ(from, to);
    }
}

// Messages in number and size as from the environment; FI_HEDDLE_TIMEOUT and _RETRY are small.
TEST_F(Rails, ThatFailAreLeft) {
    ASSERT_NO_FATAL_FAILURE(connect());
    const char* const text = std::getenv("HEDDLE_TEST_MESSAGES");
    const std::uint64_t messages = text != nullptr ? std::strtoull(text, nullptr, 10) : 10'000;
    ASSERT_NO_FATAL_FAILURE(exchange(kRailSize, 1, messages / 3));
    // While messages are under way.
    std::thread down([] {
        const int status =
            std::system("env -u LD_PRELOAD " HEDDLE_TEST_SOFTHCA " port down --device mlx5_1");
        EXPECT_EQ(status, 0);
    });
    exchange(kRailSize, messages / 3, messages - messages / 3);
    down.join();
    ASSERT_NO_FATAL_FAILURE(exchange(kRailSize, 0, 4)) << "the port may have just gone down";
    const auto before = moved_by_rails();
    ASSERT_NO_FATAL_FAILURE(exchange(1 << 20, messages, 16));
    const auto moved = moved_since(before);
    EXPECT_EQ(std::ranges::count(moved, 0.0), 1)
        << "of mlx5_1:1, which is down: " << testing::PrintToString(moved);
    constexpr double kThird = double{1 << 20} * 16 / 3;
    EXPECT_EQ(std::ranges::count_if(moved, [](double bytes) { return bytes >= 0.9 * kThird; }), 3);
    const auto seen = counts();
    EXPECT_GE(seen["stripes_again"], 1);
}

}  // namespace
}  // namespace heddle::test
