// SPDX-License-Identifier: BSD-2-Clause
// The experiments of "Exploiting application buffer reuse": messages and RMA from buffers that are
// used again, with the provider's reuse and without, between processes of this machine. The
// processes of both are there at once and take turns, so that both see the same machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/common/options.h"
#include "protocol/reuse/reuse.h"
#include "protocol/reuse/reuse_costs.h"

namespace heddle::bench {

enum class ReuseKind : std::uint8_t {
    kPingPong,
    kSelf,  // messages of a process to itself, by its processor time
    kPut,
    kGet,
    kBroadcast,
    kScatter,
};

struct ReuseCase {
    ReuseKind kind = ReuseKind::kPingPong;
    std::size_t bytes = 4096;
    std::uint32_t buffers = 1;    // that are sent from in turn
    bool separate_pages = false;  // else one behind the other
    bool again = true;            // false: the turns end before a buffer is used again
    // The spectrum of section 4: a turn uses buffer i of n for i messages, i = 1 ... n.
    bool spectrum = false;
    // Each turn has buffers that nobody has used, so learning and registering take part of its
    // time.
    bool fresh = false;
};

// Messages of a turn of the spectrum.
inline constexpr std::uint32_t spectrum_messages(std::uint32_t buffers) noexcept {
    return buffers * (buffers + 1) / 2;
}

// How many messages of a broadcast come one after the other; so many sends its root.
inline std::uint32_t tree_depth(std::uint32_t processes) noexcept {
    return static_cast<std::uint32_t>(std::bit_width(processes - 1));
}

struct ReuseRequest {
    protocol::Options options;    // of the side with reuse; the other has it off
    std::uint32_t processes = 2;  // of a side
    std::uint32_t repetitions = 15;
    double seconds = 0.01;  // of each repetition
    std::vector<ReuseCase> cases;
};

struct ReuseResult {
    // Seconds of an operation, by repetition, with reuse and without.
    std::vector<double> with, without;
    protocol::ReuseCounts reuse;  // of process 0, at the end
    std::uint32_t buffers = 0;    // fewer than wanted where a turn of the spectrum took too long
    double gathered = 0;          // of the operations with reuse of process 0: those without a copy
};

// Messages to itself before the first repetition: until a table that finds nothing has its size,
// and rests.
inline constexpr std::uint32_t kUntilAtRest = 1 << 18;

// Reports how far the experiment is.
using ProgressReport = void (*)(const std::string& what);

// Registration and copies, measured by a process of its own, as the provider does. before: what was
// kept so far (ReuseRounds::settled()). Throws std::runtime_error, as do all here.
protocol::ReuseCosts measure_reuse_costs(const protocol::Options& options,
                                         const std::optional<protocol::ReuseCosts>& before);

// By which way the operations of a case travel. ring: eager messages go by RDMA writes.
inline protocol::ReuseCosts::Way way_of(ReuseKind kind, bool ring) noexcept {
    if (kind == ReuseKind::kPut || kind == ReuseKind::kGet) return protocol::ReuseCosts::kOneSided;
    return ring ? protocol::ReuseCosts::kRing : protocol::ReuseCosts::kSend;
}

// How often the provider wants a buffer to be used before it registers it; ReuseCosts::kNever.
std::uint32_t uses_before(const ReuseCase& each, const protocol::Options& options,
                          const protocol::ReuseCosts& costs);

// A result for each case. Uses of each buffer before the first repetition: as many as the provider
// wants, and some.
std::vector<ReuseResult> run_reuse(const ReuseRequest& request, const protocol::ReuseCosts& costs,
                                   ProgressReport report);

}  // namespace heddle::bench
