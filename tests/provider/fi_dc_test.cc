// SPDX-License-Identifier: BSD-2-Clause
// FI_HEDDLE_TRANSPORT=dc: a few queue pairs for all peers. What a peer does to them is of no other.
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "tests/provider/fi_death.h"
#include "tests/provider/fi_statistics.h"

namespace heddle::test {
namespace {

class Dc : public testing::Test {
protected:
    Dc() { setenv("FI_HEDDLE_TRANSPORT", "dc", 1); }
};

std::vector<std::unique_ptr<Station>> stations(World& world, std::size_t count) {
    std::vector<std::unique_ptr<Station>> all;
    while (all.size() < count) {
        all.push_back(std::make_unique<Station>(world));
        all.back()->enable();
    }
    return all;
}

// There are three times as many peers as initiators, and each has more under way than fits a send
// queue: connections take turns, wait for their turn, and give it up.
TEST_F(Dc, ManyPeersShareAFewQueuePairs) {
    constexpr std::size_t kPeers = 24, kRounds = 200, kLong = 40'000, kLongEach = 50;
    setenv("FI_HEDDLE_SEND_DEPTH", "16", 1);
    const Statistics statistics;
    std::uint64_t received = 0;
    {
        World world;
        Station sender(world);
        sender.enable();
        World other;
        const auto crowd = stations(other, kPeers);
        std::vector<fi_addr_t> to;
        for (const auto& member : crowd)
            to.push_back(sender.add(*member));
        std::vector<std::uint64_t> next_of(kPeers, 0), room(kPeers);
        std::vector<std::byte> large(kLong, std::byte{7}), into(kLong);
        std::mt19937 lots(7);
        std::vector<std::size_t> order(kPeers);
        std::iota(order.begin(), order.end(), 0);
        fi_cq_tagged_entry entry;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            std::shuffle(order.begin(), order.end(), lots);
            for (const std::size_t peer : order) {
                const std::uint64_t value = round * kPeers + peer;
                ASSERT_EQ(insist(sender.transmit.get(),
                                 [&] {
                                     return fi_tinject(sender.ep.get(), &value, sizeof value,
                                                       to[peer], 1);
                                 }),
                          0);
            }
            if (round % kLongEach == 0) {
                const std::size_t peer = order.front();
                Station& member = *crowd[peer];
                ASSERT_EQ(fi_trecv(member.ep.get(), into.data(), kLong, nullptr, FI_ADDR_UNSPEC, 2,
                                   0, nullptr),
                          0);
                ASSERT_EQ(insist(sender.transmit.get(),
                                 [&] {
                                     return fi_tsend(sender.ep.get(), large.data(), kLong, nullptr,
                                                     to[peer], 2, nullptr);
                                 }),
                          0);
                ASSERT_EQ(next(member.receive.get(), entry, sender.transmit.get()), 0);
                ASSERT_EQ(into, large);
                std::fill(into.begin(), into.end(), std::byte{0});
                ASSERT_EQ(next(sender.transmit.get(), entry, member.receive.get()), 0);
            }
            if (round % 8 != 7) continue;  // some are left to wait
            for (std::size_t peer = 0; peer < kPeers; ++peer) {
                Station& member = *crowd[peer];
                for (; next_of[peer] <= round; ++next_of[peer], ++received) {
                    ASSERT_EQ(fi_trecv(member.ep.get(), &room[peer], sizeof room[peer], nullptr,
                                       FI_ADDR_UNSPEC, 1, 0, nullptr),
                              0);
                    ASSERT_EQ(next(member.receive.get(), entry, sender.transmit.get()), 0);
                    ASSERT_EQ(room[peer], next_of[peer] * kPeers + peer) << "out of order";
                }
            }
        }
    }
    EXPECT_EQ(received, kRounds * kPeers);
    const nlohmann::json counts = statistics.read();
    // A target and initiators of each endpoint, and the UD QP.
    const auto queue_pairs = counts["qps"].get<std::uint64_t>();
    EXPECT_GT(queue_pairs, kPeers + 1);
    EXPECT_LE(queue_pairs, 9 * (kPeers + 1) + 1);
}

int dc_receiver(Board& board) {
    World world;
    Station station(world);
    station.enable();
    put_name(board, station);
    std::uint64_t value = 0;
    fi_cq_tagged_entry entry;
    fi_trecv(station.ep.get(), &value, sizeof value, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr);
    if (next(station.receive.get(), entry) != 0) return 1;
    board.arrived = true;
    while (true)
        pause();
}

// More messages to a peer that is gone than a send queue has room for, between messages to one that
// lives. Those to the other all arrive, once and in order.
int dc_survivor(Board& board) {
    World world;
    Station station(world), other(world);
    station.enable();
    other.enable();
    const fi_addr_t to = address_on(board, station);
    if (to == FI_ADDR_NOTAVAIL) return 1;
    const fi_addr_t to_other = station.add(other);
    std::uint64_t value = 0;
    const auto inject = [&](fi_addr_t address) {
        return insist(station.transmit.get(), [&] {
            return fi_tinject(station.ep.get(), &value, sizeof value, address, 1);
        });
    };
    if (inject(to) != 0) return 2;
    fi_cq_tagged_entry entry;
    if (!wait_for([&] {
            fi_cq_read(station.transmit.get(), &entry, 0);
            return board.gone.load();
        }))
        return 3;
    std::uint64_t room = 0;
    bool is_told = false;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        value = i;
        const ssize_t sent = is_told ? 0 : inject(to);
        if (sent != 0) board.error = static_cast<int>(-sent);
        is_told = is_told || sent != 0;
        if (inject(to_other) != 0) return 4;
        fi_trecv(other.ep.get(), &room, sizeof room, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr);
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (true) {
            const ssize_t got = fi_cq_read(other.receive.get(), &entry, 1);
            if (got == 1) break;
            if (std::chrono::steady_clock::now() > end) return 5;
            fi_cq_err_entry error{};
            if (fi_cq_read(station.transmit.get(), nullptr, 0) == -FI_EAVAIL &&
                fi_cq_readerr(station.transmit.get(), &error, 0) == 1) {
                board.error = error.err;
                is_told = true;
            }
        }
        if (room != i) return 6;
    }
    // The device repeats what it has sent for some seconds.
    return wait_for([&] {
        fi_cq_err_entry error{};
        if (fi_cq_read(station.transmit.get(), nullptr, 0) == -FI_EAVAIL &&
            fi_cq_readerr(station.transmit.get(), &error, 0) == 1)
            board.error = error.err;
        return board.error != 0;
    })
               ? 0
               : 7;
}

class DcDeath : public Death {
protected:
    DcDeath() { setenv("FI_HEDDLE_TRANSPORT", "dc", 1); }
};

TEST_F(DcDeath, IsOfNoOtherPeer) {
    run(dc_receiver, dc_survivor);
    expect_told();
}

TEST_F(Dc, IsNotPossibleOnTheDirectPath) {
    setenv("FI_HEDDLE_POST", "direct", 1);
    World world;
    Station station(world);
    EXPECT_EQ(fi_enable(station.ep.get()), -FI_EOPNOTSUPP);
}

int other_transport(Board& board) {
    setenv("FI_HEDDLE_TRANSPORT", "rc", 1);
    World world;
    Station station(world);
    station.enable();
    put_name(board, station);
    board.arrived = true;
    while (true)
        pause();
}

int asks_other_transport(Board& board) {
    World world;
    Station station(world);
    station.enable();
    const fi_addr_t to = address_on(board, station);
    const std::uint64_t value = 0;
    fi_cq_tagged_entry entry;
    if (insist(station.transmit.get(), [&] {
            return fi_tsend(station.ep.get(), &value, sizeof value, nullptr, to, 1, nullptr);
        }) != 0)
        return 1;
    board.error = next(station.transmit.get(), entry);
    return 0;
}

class DcMixed : public DcDeath {};

TEST_F(DcMixed, TransportsAreNotConnected) {
    const auto start = [&](const auto& program) {
        const pid_t child = fork();
        if (child == 0) std::exit(program(*board));
        return child;
    };
    const pid_t one = start(other_transport), other = start(asks_other_transport);
    int status = 0;
    EXPECT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(board->error, EPROTOTYPE);
    kill(one, SIGKILL);
    EXPECT_EQ(waitpid(one, &status, 0), one);
}

}  // namespace
}  // namespace heddle::test
