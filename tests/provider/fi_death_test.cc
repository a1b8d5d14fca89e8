// SPDX-License-Identifier: BSD-2-Clause
// A process that is killed: who waits for it is told.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

// What the processes tell each other: memory of all of them.
struct Board {
    std::byte name[kNameBytes];
    std::atomic<bool> named, arrived;
    std::atomic<int> error;
};

template <class Condition>
bool wait_for(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(1000);
    }
    return true;
}

// Sees that a message came, takes it not, and is killed.
int receiver(Board& board) {
    World world;
    Station station(world);
    station.enable();
    std::memcpy(board.name, station.name, kNameBytes);
    board.named = true;
    fi_msg_tagged probe{};
    probe.addr = FI_ADDR_UNSPEC;
    probe.tag = 1;
    fi_cq_tagged_entry entry;
    const bool found = wait_for([&] {
        return fi_trecvmsg(station.ep.get(), &probe, FI_PEEK) == 0 &&
               next(station.receive.get(), entry) == 0;
    });
    board.arrived = found;
    while (found)
        pause();
    return 1;
}

// The message's request is delivered, and asked for no completion: nothing of this side is under
// way when the peer dies.
int sender(Board& board) {
    World world;
    Station station(world);
    station.enable();
    if (!wait_for([&] { return board.named.load(); })) return 1;
    fi_addr_t to = FI_ADDR_UNSPEC;
    if (fi_av_insert(station.av.get(), board.name, 1, &to, 0, nullptr) != 1) return 1;
    const std::vector<char> large(100'000);
    const auto send = [&] {
        return fi_tsend(station.ep.get(), large.data(), large.size(), nullptr, to, 1, nullptr);
    };
    if (insist(station.transmit.get(), send) != 0) return 1;
    fi_cq_tagged_entry entry;
    board.error = next(station.transmit.get(), entry);
    return 0;
}

template <class Run>
pid_t start(Run&& run) {
    const pid_t child = fork();
    if (child == 0) std::exit(run());
    return child;
}

TEST(Death, SenderOfAWaitingMessageIsTold) {
    auto* const board = static_cast<Board*>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t dies = start([&] { return receiver(*board); });
    const pid_t waits = start([&] { return sender(*board); });
    EXPECT_TRUE(wait_for([&] { return board->arrived.load(); }));
    kill(dies, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(dies, &status, 0), dies);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(waitpid(waits, &status, 0), waits);
    EXPECT_EQ(status, 0);
    // Of a probe that nobody answered, or of one that the device had no more hope for.
    const int error = board->error.load();
    EXPECT_TRUE(error == EHOSTUNREACH || error == ECONNABORTED) << std::strerror(error);
    munmap(board, sizeof(Board));
}

}  // namespace
}  // namespace heddle::test
