// SPDX-License-Identifier: BSD-2-Clause
// A peer dies while messages to its tuple queues wait: at the device, or in the sender because it
// lacks a queue pair. They end with errors, and messages to others go on.
#include "tests/provider/fi_death.h"

namespace heddle::test {
namespace {

constexpr std::uint64_t kDeathTags = 4;
constexpr std::size_t kDeathBytes = 40'000;
constexpr int kWarm = 12;

// In memory that both processes share. The sender writes its name, then sets `named`.
struct Names {
    std::byte sender[kNameBytes];
    std::atomic<bool> named;
};
Names* names = nullptr;

class TupleDeath : public Death {
protected:
    TupleDeath() {
        setenv("FI_HEDDLE_RNDV", "tupleq", 1);
        setenv("FI_HEDDLE_TUPLE_QPS", "1", 1);
        setenv("FI_HEDDLE_CONNECT_TIMEOUT", "2000", 1);
        names = static_cast<Names*>(mmap(nullptr, sizeof(Names), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    }
    ~TupleDeath() override { munmap(names, sizeof(Names)); }
};

// Receives what makes the tuples, then nothing more.
int tuple_receiver(Board& board) {
    World world;
    Station station(world);
    station.enable();
    put_name(board, station);
    if (!wait_for([] { return names->named.load(); })) return 1;
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    fi_av_insert(station.av.get(), names->sender, 1, &from, 0, nullptr);
    std::vector<char> room(kDeathBytes);
    fi_cq_tagged_entry entry;
    for (int i = 0; i < kWarm; ++i)
        for (std::uint64_t tag = 0; tag < kDeathTags; ++tag)
            if (fi_trecv(station.ep.get(), room.data(), kDeathBytes, nullptr, from, tag, 0,
                         nullptr) != 0 ||
                next(station.receive.get(), entry) != 0)
                return 2;
    for (;;) {
        fi_cq_read(station.receive.get(), &entry, 0);
        usleep(1000);
    }
}

// One message, through a tuple from the third on, to somebody else.
bool goes_on(Station& station, Station& other, fi_addr_t to_other, fi_addr_t from) {
    std::vector<char> room(kDeathBytes), bytes(kDeathBytes, 'x');
    fi_cq_tagged_entry entry;
    for (int i = 0; i < 5; ++i) {
        room.assign(kDeathBytes, ' ');
        if (fi_trecv(other.ep.get(), room.data(), kDeathBytes, nullptr, from, 77, 0, nullptr) !=
                0 ||
            fi_tsend(station.ep.get(), bytes.data(), kDeathBytes, nullptr, to_other, 77, &other) !=
                0 ||
            next(other.receive.get(), entry, station.transmit.get()) != 0 || room != bytes)
            return false;
        while (next(station.transmit.get(), entry, other.receive.get()) == 0)
            if (entry.op_context == &other) break;
    }
    return true;
}

// kBefore: the messages are under way when the peer dies; otherwise they are sent when it is gone,
// and there is no queue pair for them yet. kMany: of how many tuples; one has the queue pair.
template <bool kBefore, std::uint64_t kMany>
int tuple_sender(Board& board) {
    World world, other_world;
    Station station(world), other(other_world);
    station.enable();
    other.enable();
    std::memcpy(names->sender, station.name, kNameBytes);
    names->named = true;
    const fi_addr_t to = address_on(board, station), to_other = station.add(other),
                    from = other.add(station);
    const std::vector<char> bytes(kDeathBytes, 'y');
    fi_cq_tagged_entry entry;
    const auto send = [&](std::uint64_t tag) {
        return insist(station.transmit.get(), [&] {
            return fi_tsend(station.ep.get(), bytes.data(), kDeathBytes, nullptr, to, tag, nullptr);
        });
    };
    for (int i = 0; i < kWarm; ++i)
        for (std::uint64_t tag = 0; tag < kDeathTags; ++tag)
            if (send(tag) != 0 || next(station.transmit.get(), entry) != 0) return 1;
    if (!goes_on(station, other, to_other, from)) return 2;
    const auto send_all = [&] {
        for (std::uint64_t tag = 0; tag < kMany; ++tag)
            if (send(tag) != 0) return false;
        return true;
    };
    if (kBefore) {
        if (!send_all()) return 3;
        // Longer than it takes to connect the queue pair.
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
        while (std::chrono::steady_clock::now() < until)
            if (fi_cq_read(station.transmit.get(), &entry, 1) != -FI_EAGAIN) return 4;
        if (!goes_on(station, other, to_other, from)) return 5;
    }
    board.arrived = true;
    if (!wait_for([&] { return board.gone.load(); })) return 6;
    if (!kBefore && !send_all()) return 7;
    for (std::uint64_t i = 0; i < kMany; ++i) {
        board.error = next(station.transmit.get(), entry);
        if (board.error == 0 || board.error == FI_ETIMEDOUT) return 8;
    }
    return goes_on(station, other, to_other, from) ? 0 : 9;
}

TEST_F(TupleDeath, EndsAMessageAtTheDevice) {
    run(tuple_receiver, tuple_sender<true, 1>);
    expect_told();
}
TEST_F(TupleDeath, EndsMessagesThatWaitForAQueuePair) {
    run(tuple_receiver, tuple_sender<true, kDeathTags>);
    expect_told();
}
TEST_F(TupleDeath, EndsAMessageThatIsSentLater) {
    run(tuple_receiver, tuple_sender<false, 1>);
    expect_told();
}
TEST_F(TupleDeath, EndsMessagesThatAreSentLater) {
    run(tuple_receiver, tuple_sender<false, kDeathTags>);
    expect_told();
}

}  // namespace
}  // namespace heddle::test
