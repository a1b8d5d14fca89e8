// SPDX-License-Identifier: BSD-2-Clause
// How much of a message's time its sender, or its receiver, has for itself: post, work, wait, as
// in Sandia's micro-benchmark of MPI overhead (SMB). Without work an iteration takes the base
// time; then there is more and more work, without a call of the library, until an iteration takes
// half as long again. What it takes beyond the work is the overhead. Availability has one base for
// all modes: the base time of the fastest one. A program that works for so long loses the overhead,
// and waits for what the message takes longer; the share that is left is available.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "protocol/common/options.h"

namespace heddle::bench {

enum class OverlapSide : std::uint8_t { kSender, kReceiver };
// What the other side does while it waits: asks without a pause, gives its processor away each
// time, or sleeps for some microseconds.
enum class PeerWait : std::uint8_t { kSpin, kYield, kSleep };

struct OverlapCase {
    OverlapSide side = OverlapSide::kSender;
    std::size_t bytes = 0;
};

struct OverlapRequest {
    std::vector<protocol::Options> teams;  // what is compared: each has two processes
    std::vector<OverlapCase> cases;
    PeerWait peer = PeerWait::kYield;
    std::uint32_t repetitions = 9;
    double seconds = 0.004;  // of each step to more work
};

// Microseconds of an iteration: medians of one turn.
struct OverlapSample {
    double base = 0;            // without work
    double overhead = 0;        // of an iteration with enough work, beyond that
    double work = 0;            // so much was enough
    double post = 0, wait = 0;  // the two calls then
    // fastest: the least base time of all modes, in microseconds.
    double availability(double fastest) const noexcept {
        return fastest > 0 ? std::max(0.0, 1 - std::max(overhead, base - fastest) / fastest) : 0;
    }
};

struct OverlapResult {
    std::vector<OverlapSample> samples;  // by repetition
    // The counts are of all messages that the computing side sends or receives.
    double by_tuple = 0;  // share that went through tuple queues
    double late = 0;      // share of which the sender found no receive
    double switches = 0;  // for each, how often the thread that works had to make room for others
};

// Results by case, then by team. Throws std::runtime_error.
std::vector<std::vector<OverlapResult>> run_overlap(
    const OverlapRequest& request, const std::function<void(const OverlapCase&)>& report);

}  // namespace heddle::bench
