// SPDX-License-Identifier: BSD-2-Clause
// The message-rate experiment of ICPADS'18, section IV: n threads write small messages into another
// process as fast as they can, each on its endpoint; what of their resources they share, and which
// features of the adapter they use, is varied. message_rate_loop.h has what a thread does,
// message_rate_peer.h the other process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/endpoint.h"

namespace heddle::bench {

class Team;

struct MessageRate {
    std::string device;
    Sharing sharing;
    std::uint32_t threads = 1;
    Path path = Path::kVerbs;
    std::uint32_t depth = 128;        // of a send queue
    std::uint32_t post_list = 32;     // p: requests handed over with one doorbell
    std::uint32_t signal_every = 64;  // q: one completion for so many
    std::uint32_t bytes = 2;
    bool inlining = true;
    bool blueflame = true;                // false: doorbells only, whatever the environment says
    std::uint32_t buffer_alignment = 64;  // of the payloads; 1: they share cache lines
    double seconds = 0.1;                 // of one repetition
    std::vector<int> processors;          // thread t runs on the t-th (see common/pinning.h)
};

// Millions of messages, of all threads together.
struct Rate {
    // Millions of messages, by the clock: over the time in which at least one thread worked.
    double per_second = 0;
    // By the processor time of all threads: what one core does. It says nothing of how rates scale:
    // times the threads it grows with them whatever they share, unless a thread spins for another.
    double per_cpu_second = 0;
};

// Made once, measured as often as wanted, so that repetitions of several can be interleaved.
class MessageRateRun {
public:
    // For rank 0 of run_with_rate_peer(): the messages go to the other process. Throws VerbsError,
    // TeamError. While it runs, no other thread may read or write the environment, through which
    // libmlx5 has to leave BlueFlame alone.
    MessageRateRun(const MessageRate& parameters, Team& team);
    // For checks within one process: each QP is connected to itself.
    explicit MessageRateRun(const MessageRate& parameters);
    MessageRateRun(MessageRateRun&&) noexcept;
    ~MessageRateRun();

    // A tenth of a repetition, not measured: caches and page tables are filled.
    void warm_up();
    // Throws VerbsError if a message fails, ImpossibleRate (common/clock.h) if the clock is wrong.
    Rate repeat();
    std::uint64_t messages() const noexcept;  // sent so far, those of warm_up() included
    const Usage& usage() const noexcept;

private:
    struct Parts;
    static std::unique_ptr<Parts> make(const MessageRate& parameters, Team* team);
    std::unique_ptr<Parts> parts_;
};

}  // namespace heddle::bench
