// SPDX-License-Identifier: BSD-2-Clause
#include "predict/micro_costs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTurns = 20'000, kRepetitions = 7;

// The least of some repetitions: what disturbs only adds.
double least_ns(const std::function<void()>& once, int steps) {
    double least = 0;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
        const auto begin = Clock::now();
        once();
        const double ns =
            std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / steps;
        least = repetition == 0 ? ns : std::min(least, ns);
    }
    return least;
}

double atomic_ns() {
    std::atomic<std::uint64_t> word{0};
    return least_ns(
        [&] {
            for (int i = 0; i < kTurns; ++i)
                word.fetch_add(1, std::memory_order_acq_rel);
        },
        kTurns);
}

// Two threads write one line in turns: each turn is a transfer.
double transfer_ns() {
    alignas(64) std::atomic<int> turn{0};
    return least_ns(
        [&] {
            turn = 0;
            const auto play = [&](int side) {
                for (int i = side; i < kTurns; i += 2) {
                    while (turn.load(std::memory_order_acquire) != i)
                        std::this_thread::yield();
                    turn.store(i + 1, std::memory_order_release);
                }
            };
            std::thread other(play, 1);
            play(0);
            other.join();
        },
        kTurns);
}

// All threads meet; the last lets them go on, as the barrier of an OpenMP run time does.
double barrier_ns(std::uint32_t threads) {
    constexpr int kBarriers = 2000;
    std::atomic<std::uint32_t> arrived{0}, round{0};
    return least_ns(
        [&] {
            const auto meet = [&] {
                for (int i = 0; i < kBarriers; ++i) {
                    const std::uint32_t now = round.load(std::memory_order_acquire);
                    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
                        arrived.store(0, std::memory_order_relaxed);
                        round.store(now + 1, std::memory_order_release);
                    } else {
                        while (round.load(std::memory_order_acquire) == now)
                            std::this_thread::yield();
                    }
                }
            };
            std::vector<std::thread> others;
            for (std::uint32_t i = 1; i < threads; ++i)
                others.emplace_back(meet);
            meet();
            for (std::thread& each : others)
                each.join();
        },
        kBarriers);
}

}  // namespace

MicroCosts micro_costs(std::uint32_t threads) {
    HEDDLE_ASSERT(threads != 0, "a machine has a thread");
    MicroCosts costs;
    costs.atomic = atomic_ns();
    if (threads == 1) return costs;
    costs.line_transfer = transfer_ns();
    costs.barrier = barrier_ns(threads) / std::bit_width(threads - 1);
    return costs;
}

}  // namespace heddle::predict
