// SPDX-License-Identifier: BSD-2-Clause
// Messages through shared memory (FI_HEDDLE_SHM): of all sizes, between processes, in order with
// messages that go by the device, and to readers that sleep. A process that is killed meanwhile
// leaves an error with its peers, and nothing that waits.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "tests/provider/fi_death.h"
#include "tests/provider/fi_statistics.h"

namespace heddle::test {
namespace {

constexpr std::size_t kLongest = 300'000;
constexpr int kWarmUp = 300;  // messages, after which the ring is open

char content(std::uint64_t number, std::size_t at) {
    return static_cast<char>(number * 31 + at * 7 + at / 256);
}
void fill(std::vector<char>& bytes, std::uint64_t number) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = content(number, i);
}
bool is_filled(const char* bytes, std::size_t count, std::uint64_t number) {
    for (std::size_t i = 0; i < count; ++i)
        if (bytes[i] != content(number, i)) return false;
    return true;
}
std::size_t size_of(std::uint64_t number) {
    static constexpr std::size_t kSizes[] = {8,    0,      96,     97,     112,     1000,     8192,
                                             8193, 20'000, 32'768, 32'769, 100'000, kLongest, 1};
    return kSizes[number % std::size(kSizes)];
}

// Both ends in one process, each in a domain of its own.
class Shm : public testing::Test {
protected:
    Shm() { setenv("FI_HEDDLE_SHM", "1", 1); }
    void open(fi_wait_obj wait = FI_WAIT_NONE) {
        for (End* const end : {&a_, &b_}) {
            end->world.emplace();
            end->station.emplace(*end->world, wait);
            end->station->enable();
        }
        a_.to_other = a_.station->add(*b_.station);
        b_.to_other = b_.station->add(*a_.station);
        for (std::uint64_t number = 1; number < kWarmUp; ++number)
            transfer(a_, b_, number);
    }
    struct End {
        std::optional<World> world;
        std::optional<Station> station;
        fi_addr_t to_other = FI_ADDR_UNSPEC;
    };
    void transfer(End& from, End& to, std::uint64_t number) {
        std::vector<char> out(size_of(number)), in(kLongest);
        fill(out, number);
        fid_ep* const receiver = to.station->ep.get();
        ASSERT_EQ(
            fi_trecv(receiver, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, number, 0, nullptr),
            0);
        const auto send = [&] {
            return fi_tsenddata(from.station->ep.get(), out.data(), out.size(), nullptr,
                                number << (number % 2 * 32), from.to_other, number, nullptr);
        };
        ASSERT_EQ(insist(from.station->transmit.get(), send), 0);
        fi_cq_tagged_entry entry{};
        ASSERT_EQ(next(to.station->receive.get(), entry, from.station->transmit.get()), 0);
        EXPECT_EQ(entry.len, out.size());
        EXPECT_EQ(entry.tag, number);
        EXPECT_EQ(entry.data, number << (number % 2 * 32));
        EXPECT_TRUE(is_filled(in.data(), entry.len, number)) << number;
        ASSERT_EQ(next(from.station->transmit.get(), entry, to.station->receive.get()), 0);
    }
    nlohmann::json closed() {
        for (End* const end : {&a_, &b_})
            end->station.reset();
        for (End* const end : {&a_, &b_})
            end->world.reset();
        return statistics_.read();
    }
    Statistics statistics_;
    End a_, b_;
};

TEST_F(Shm, MessagesOfAllSizesArrive) {
    open();
    for (std::uint64_t number = 1; number < 400; ++number) {
        transfer(a_, b_, number);
        transfer(b_, a_, number);
    }
    const nlohmann::json counts = closed();
    EXPECT_EQ(counts["shm_peers"], 2);
    EXPECT_GT(counts["by_shm"], 500);
    EXPECT_GE(counts["from_shm"], counts["by_shm"]);
}

TEST_F(Shm, WithoutTheOptionThereIsNone) {
    setenv("FI_HEDDLE_SHM", "0", 1);
    open();
    const nlohmann::json counts = closed();
    EXPECT_EQ(counts["shm_peers"], 0);
    EXPECT_EQ(counts["by_shm"], 0);
    EXPECT_EQ(counts["read_by_process"], 0);
}

// As many as a ring has no room for, before a receive is posted.
TEST_F(Shm, UnexpectedMessagesAreKeptInOrder) {
    open();
    constexpr std::uint64_t kMany = 3000;
    std::deque<std::vector<char>> kept;
    fi_cq_tagged_entry entry{};
    std::uint64_t ended = 0;
    fid_cq* const sent = a_.station->transmit.get();
    for (std::uint64_t number = 0; number < kMany; ++number) {
        fill(kept.emplace_back(size_of(number) % 10'000), number);
        const auto send = [&] {
            return fi_tsend(a_.station->ep.get(), kept.back().data(), kept.back().size(), nullptr,
                            a_.to_other, 7, nullptr);
        };
        ASSERT_EQ(insist(b_.station->receive.get(),
                         [&] {
                             while (fi_cq_read(sent, &entry, 1) == 1)
                                 ++ended;
                             return send();
                         }),
                  0);
    }
    std::vector<char> room(kLongest);
    for (std::uint64_t number = 0; number < kMany; ++number) {
        ASSERT_EQ(fi_trecv(b_.station->ep.get(), room.data(), room.size(), nullptr, FI_ADDR_UNSPEC,
                           7, 0, nullptr),
                  0);
        ASSERT_EQ(next(b_.station->receive.get(), entry, sent), 0);
        ASSERT_EQ(entry.len, size_of(number) % 10'000) << "message " << number;
        ASSERT_TRUE(is_filled(room.data(), entry.len, number)) << "message " << number;
    }
    while (ended < kMany && next(sent, entry, b_.station->receive.get()) == 0)
        ++ended;
    EXPECT_EQ(ended, kMany);
}

// FI_ORDER_SAW: whoever has the message has what was written before it.
TEST_F(Shm, AMessageIsBehindTheWritesBeforeIt) {
    open();
    std::vector<std::uint64_t> window(4096);
    const auto region = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(b_.world->domain.get(), window.data(), window.size() * 8, FI_REMOTE_WRITE,
                         0, 0, 0, out, nullptr);
    });
    fid_ep *const a = a_.station->ep.get(), *const b = b_.station->ep.get();
    fid_cq* const sent = a_.station->transmit.get();
    fi_cq_tagged_entry entry{};
    for (std::uint64_t number = 1; number < 500; ++number) {
        const std::size_t words = number % 3 == 0 ? window.size() : 1;
        const std::vector<std::uint64_t> values(words, number);
        std::uint64_t got = 0;
        ASSERT_EQ(fi_trecv(b, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr), 0);
        ASSERT_EQ(insist(sent,
                         [&] {
                             return fi_write(a, values.data(), words * 8, nullptr, a_.to_other,
                                             reinterpret_cast<std::uintptr_t>(window.data()),
                                             fi_mr_key(region.get()), nullptr);
                         }),
                  0);
        ASSERT_EQ(insist(sent,
                         [&] {
                             return fi_tsend(a, &number, sizeof number, nullptr, a_.to_other, 5,
                                             nullptr);
                         }),
                  0);
        ASSERT_EQ(next(b_.station->receive.get(), entry, sent), 0);
        EXPECT_EQ(got, number);
        for (std::size_t i = 0; i < words; ++i)
            ASSERT_EQ(static_cast<volatile std::uint64_t&>(window[i]), number);
        ASSERT_EQ(next(sent, entry), 0);
        ASSERT_EQ(next(sent, entry), 0);
    }
}

TEST_F(Shm, ASleepingReaderIsWoken) {
    open(FI_WAIT_FD);
    std::uint64_t got = 0;
    for (std::uint64_t number = 0; number < 50; ++number) {
        ASSERT_EQ(fi_trecv(b_.station->ep.get(), &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 5, 0,
                           nullptr),
                  0);
        fi_cq_tagged_entry entry{};
        // Asleep before the message comes, if it is so long.
        EXPECT_EQ(fi_cq_sread(b_.station->receive.get(), &entry, 1, nullptr, 1), -FI_EAGAIN);
        ASSERT_EQ(insist(a_.station->transmit.get(),
                         [&] {
                             return fi_tsend(a_.station->ep.get(), &number, sizeof number, nullptr,
                                             a_.to_other, 5, nullptr);
                         }),
                  0);
        const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
        ASSERT_EQ(fi_cq_sread(b_.station->receive.get(), &entry, 1, nullptr, patience), 1);
        EXPECT_EQ(got, number);
        ASSERT_EQ(next(a_.station->transmit.get(), entry), 0);
    }
    EXPECT_GT(closed()["by_shm"], 180);
}

// Several processes. The first has the name on the board.
class ShmProcesses : public Death {
protected:
    ShmProcesses() { setenv("FI_HEDDLE_SHM", "1", 1); }
    // The exit code of a process that runs that.
    static int wait_of(pid_t child) {
        int status = 0;
        return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    template <class Program>
    pid_t start(const Program& program) {
        const pid_t child = fork();
        if (child == 0) std::exit(program(*board));
        return child;
    }
};

constexpr std::uint64_t kOfEach = 1500;
constexpr std::size_t kSenders = 3;

// Sends messages of one tag, each with its number. number: which of the senders.
template <bool kWrites>
int counting_sender(Board& board, std::uint64_t number, const char* shm) {
    setenv("FI_HEDDLE_SHM", shm, 1);
    Survivor survivor(board);
    auto& [world, station, to] = survivor;
    if (to == FI_ADDR_NOTAVAIL) return 1;
    struct Target {
        std::uint64_t address, key;
    } target;
    std::memcpy(&target, board.other, sizeof target);
    std::vector<char> bytes;
    fi_cq_tagged_entry entry{};
    for (std::uint64_t i = 0; i < kOfEach; ++i) {
        const std::uint64_t head[2] = {number, i};
        bytes.resize(std::max(sizeof head, size_of(i * kSenders + number) % 50'000));
        fill(bytes, i);
        std::memcpy(bytes.data(), head, sizeof head);
        // A write makes the next message go by the device.
        const bool has_write = kWrites && i % 3 == 0;
        if (has_write && insist(station.transmit.get(), [&] {
                             return fi_write(station.ep.get(), head, 8, nullptr, to, target.address,
                                             target.key, nullptr);
                         }) != 0)
            return 2;
        if (insist(station.transmit.get(), [&] {
                return fi_tsend(station.ep.get(), bytes.data(), bytes.size(), nullptr, to, 9,
                                nullptr);
            }) != 0)
            return 3;
        for (int ends = has_write ? 2 : 1; ends != 0; --ends)
            if (next(station.transmit.get(), entry) != 0) return 4;
    }
    return 0;
}

// Receives from any source, of which some send through shared memory, one by the device, and one in
// turns: each sender's messages come in their order, and each once.
int counting_receiver(Board& board) {
    const Statistics statistics;
    {
        World world;
        Station station(world);
        station.enable();
        std::vector<std::uint64_t> window(8);
        const auto region = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
            return fi_mr_reg(world.domain.get(), window.data(), 64, FI_REMOTE_WRITE, 0, 0, 0, out,
                             nullptr);
        });
        const std::uint64_t target[2] = {reinterpret_cast<std::uintptr_t>(window.data()),
                                         fi_mr_key(region.get())};
        std::memcpy(board.other, target, sizeof target);
        put_name(board, station);
        // The messages by the order of the receives that took them: of which sender, which.
        std::vector<std::array<std::uint64_t, 2>> taken;
        struct Posted {
            std::vector<char> room = std::vector<char>(kLongest);
            std::size_t place = 0;
        };
        std::array<Posted, 4> receives;
        const auto post = [&](Posted& receive) {
            receive.place = taken.size();
            taken.emplace_back();
            return fi_trecv(station.ep.get(), receive.room.data(), kLongest, nullptr,
                            FI_ADDR_UNSPEC, 9, 0, &receive) == 0;
        };
        for (Posted& receive : receives)
            if (!post(receive)) return 1;
        for (std::uint64_t left = kOfEach * kSenders; left != 0; --left) {
            fi_cq_tagged_entry entry{};
            if (next(station.receive.get(), entry) != 0) return 2;
            auto& receive = *static_cast<Posted*>(entry.op_context);
            auto& head = taken[receive.place];
            std::memcpy(head.data(), receive.room.data(), sizeof head);
            if (head[0] >= kSenders || head[1] >= kOfEach) return 3;
            const std::size_t bytes =
                std::max(sizeof head, size_of(head[1] * kSenders + head[0]) % 50'000);
            if (entry.len != bytes) return 4;
            for (std::size_t i = sizeof head; i < bytes; ++i)
                if (receive.room[i] != content(head[1], i)) return 5;
            if (left > receives.size() && !post(receive)) return 6;
        }
        std::array<std::uint64_t, kSenders> expected{};
        for (const auto& [sender, number] : taken)
            if (number != expected[sender]++) return 7;
    }
    const nlohmann::json counts = statistics.read();
    return counts["shm_peers"] == kSenders - 1 && counts["from_shm"] > kOfEach ? 0 : 8;
}

TEST_F(ShmProcesses, ReceivesFromAnySourceMatchInOrder) {
    const pid_t receiver = start(counting_receiver);
    const pid_t senders[] = {
        start([](Board& its) { return counting_sender<false>(its, 0, "on"); }),
        start([](Board& its) { return counting_sender<true>(its, 1, "on"); }),
        start([](Board& its) { return counting_sender<false>(its, 2, "off"); })};
    EXPECT_EQ(wait_of(receiver), 0);
    for (const pid_t sender : senders)
        EXPECT_EQ(wait_of(sender), 0);
}

// Exchanges messages with the process of the board until the ring is open.
bool warm_up(Station& station, fi_addr_t to, bool first) {
    std::uint64_t number = 0, got = 0;
    fi_cq_tagged_entry entry{};
    for (int i = 0; i < kWarmUp; ++i) {
        const auto receive = [&] {
            return fi_trecv(station.ep.get(), &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 2, 0,
                            nullptr) == 0 &&
                   next(station.receive.get(), entry) == 0;
        };
        const auto send = [&] {
            return insist(station.transmit.get(),
                          [&] {
                              return fi_tsend(station.ep.get(), &number, sizeof number, nullptr, to,
                                              2, nullptr);
                          }) == 0 &&
                   next(station.transmit.get(), entry) == 0;
        };
        if (first ? !send() || !receive() : !receive() || !send()) return false;
    }
    return true;
}

// Both processes know each other.
template <bool kFirst, class Then>
int paired(Board& board, const Then& then) {
    World world;
    Station station(world);
    station.enable();
    std::memcpy(kFirst ? board.name : board.other, station.name, kNameBytes);
    (kFirst ? board.named : board.other_named) = true;
    if (!wait_for([&] { return board.named && board.other_named; })) return 1;
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(station.av.get(), kFirst ? board.other : board.name, 1, &to, 0, nullptr) != 1)
        return 1;
    if (!warm_up(station, to, kFirst)) return 2;
    return then(station, to);
}

// Takes no message any more, and is killed.
int silent_reader(Board& board) {
    return paired<true>(board, [](Station&, fi_addr_t) {
        for (;;)
            pause();
        return 1;
    });
}

// More than the ring takes: some wait for room, which nobody makes.
int filling_sender(Board& board) {
    return paired<false>(board, [&](Station& station, fi_addr_t to) {
        const std::vector<char> bytes(500);
        for (int i = 0; i < 2000; ++i)
            if (fi_tsend(station.ep.get(), bytes.data(), bytes.size(), nullptr, to, 3, nullptr) !=
                0)
                break;
        board.arrived = true;
        fi_cq_tagged_entry entry{};
        int error = 0;
        while (error == 0)
            error = next(station.transmit.get(), entry);
        board.error = error;
        return 0;
    });
}

TEST_F(ShmProcesses, ASenderWithoutRoomIsToldThatItsReaderDied) {
    run(silent_reader, filling_sender);
    const int error = board->error.load();
    EXPECT_TRUE(error == EHOSTUNREACH || error == ECONNABORTED || error == ECONNRESET)
        << std::strerror(error);
}

// Announces a large message, sends small ones, and is killed.
int dying_sender(Board& board) {
    return paired<true>(board, [&](Station& station, fi_addr_t to) {
        static const std::vector<char> large(1 << 20, 'l');
        std::uint64_t number = 0;
        for (; number < 10; ++number)
            if (fi_tsend(station.ep.get(), &number, sizeof number, nullptr, to, 3, nullptr) != 0)
                return 3;
        if (fi_tsend(station.ep.get(), large.data(), large.size(), nullptr, to, 4, nullptr) != 0)
            return 4;
        board.arrived = true;
        for (;;)
            pause();
        return 5;
    });
}

// What was sent before is there, and the large one ends with an error.
int late_receiver(Board& board) {
    return paired<false>(board, [&](Station& station, fi_addr_t) {
        if (!wait_for([&] { return board.gone.load(); })) return 3;
        fi_cq_tagged_entry entry{};
        for (std::uint64_t number = 0; number < 10; ++number) {
            std::uint64_t got = 99;
            if (fi_trecv(station.ep.get(), &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 3, 0,
                         nullptr) != 0 ||
                next(station.receive.get(), entry) != 0 || got != number)
                return 4;
        }
        std::vector<char> room(1 << 20);
        if (fi_trecv(station.ep.get(), room.data(), room.size(), nullptr, FI_ADDR_UNSPEC, 4, 0,
                     nullptr) != 0)
            return 5;
        board.error = next(station.receive.get(), entry);
        return 0;
    });
}

TEST_F(ShmProcesses, AReceiverIsToldThatTheSenderOfALargeMessageDied) {
    run(dying_sender, late_receiver);
    EXPECT_NE(board->error.load(), 0);
    EXPECT_NE(board->error.load(), FI_ETIMEDOUT);
}

}  // namespace
}  // namespace heddle::test
