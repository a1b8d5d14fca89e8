// SPDX-License-Identifier: BSD-2-Clause
// For tests of what the others see when a process is killed.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "tests/provider/fi_support.h"

namespace heddle::test {

template <class Condition>
bool wait_for(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(1000);
    }
    return true;
}

// What the processes tell each other: memory of all of them.
struct Board {
    std::byte name[kNameBytes], other[kNameBytes];
    std::atomic<bool> named, other_named, arrived, gone;
    std::atomic<int> error;
};

// `arrived` in all; then the process that has the name is killed.
class Death : public testing::Test {
protected:
    Death()
        : board(static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
    ~Death() override { munmap(board, sizeof(Board)); }
    // Until both have ended.
    template <class Dies, class Lives>
    void run(const Dies& dies, const Lives& lives) {
        const auto start = [&](const auto& program) {
            const pid_t child = fork();
            if (child == 0) std::exit(program(*board));
            return child;
        };
        const pid_t one = start(dies), other = start(lives);
        EXPECT_TRUE(wait_for([&] { return board->arrived.load(); }));
        kill(one, SIGKILL);
        int status = 0;
        EXPECT_EQ(waitpid(one, &status, 0), one);
        EXPECT_TRUE(WIFSIGNALED(status));
        board->gone = true;
        EXPECT_EQ(waitpid(other, &status, 0), other);
        EXPECT_EQ(status, 0);
    }
    // The operation ended with an error of a lost peer: EHOSTUNREACH if a probe had no answer,
    // ECONNABORTED if the device flushed the operation.
    void expect_told() const {
        const int error = board->error.load();
        EXPECT_TRUE(error == EHOSTUNREACH || error == ECONNABORTED) << std::strerror(error);
    }
    Board* const board;
};

// The other process may send to that endpoint.
inline void put_name(Board& board, const Station& station) {
    std::memcpy(board.name, station.name, kNameBytes);
    board.named = true;
}

// Waits until the other process has written its name to the board. Returns its address, or
// FI_ADDR_NOTAVAIL if it does not.
inline fi_addr_t address_on(Board& board, Station& station) {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    if (wait_for([&] { return board.named.load(); }))
        fi_av_insert(station.av.get(), board.name, 1, &address, 0, nullptr);
    return address;
}

// The one that lives, with the address of the other, or FI_ADDR_NOTAVAIL.
struct Survivor {
    explicit Survivor(Board& board, fi_wait_obj wait = FI_WAIT_NONE) : station(world, wait) {
        station.enable();
        to = address_on(board, station);
    }
    World world;
    Station station;
    fi_addr_t to;
};

}  // namespace heddle::test
