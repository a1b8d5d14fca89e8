// SPDX-License-Identifier: BSD-2-Clause
// Messages that may go through tuple queues, beside the same messages without: what TupleQ gains,
// and what it may lose, where receives come late, tags are many or receives have wildcards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "protocol/common/options.h"

namespace heddle::bench {

struct TupleCase {
    bool ping_pong = false;  // else windows of messages, one way
    std::size_t bytes = 0;
    std::uint32_t tags = 1;  // that are used in turn
    bool early = true;       // receives are posted before it is said that messages may come
    double late_us = 0;      // else: so long after, which the receiver computes
    unsigned wildcards = 0;  // percent of the receives: any source
    bool warm = false;       // large messages first, so that there is a queue for small ones, too
};

struct TupleRequest {
    std::vector<protocol::Options> teams;  // what is compared: each has two processes
    std::vector<TupleCase> cases;
    std::uint32_t window = 32;  // messages that are sent before one is waited for
    std::uint32_t repetitions = 15;
    double seconds = 0.01;  // of each
};

struct TupleResult {
    // Time of a message, by repetition. It counts the parts of a repetition in which no process was
    // preempted by another program; if there are none, all parts.
    std::vector<double> seconds;
    double undisturbed = 0;    // share of the parts
    double by_tuple = 0;       // share of the messages
    double late = 0;           // share that found no receive
    std::uint64_t opened = 0;  // queues, in all repetitions
};

// Results by case, then by team. Throws std::runtime_error: a message that is not the one expected,
// too.
std::vector<std::vector<TupleResult>> run_tuples(
    const TupleRequest& request, const std::function<void(const TupleCase&)>& report);

}  // namespace heddle::bench
