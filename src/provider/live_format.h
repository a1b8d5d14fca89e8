// SPDX-License-Identifier: BSD-2-Clause
// What a process publishes of its endpoints while it runs, for `heddle top`: a segment of anonymous
// memory (memfd_create(2)). Other processes of the same user find it among the process's file
// descriptors, so the kernel removes it however the process ends. Only the provider writes it.
//
// Layout: LiveHeader, then `slots` LiveSlots. Each block of values has a sequence number, odd while
// it is written (a seqlock). A slot whose number is 0 is free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle::provider {

inline constexpr char kLiveName[] = "heddle-live";  // the name of the memfd
inline constexpr std::uint32_t kLiveMagic = 0x564c4448, kLiveVersion = 1;
inline constexpr std::uint32_t kLiveSlots = 256, kMostLiveSlots = 65536;

// A value as `heddle top` shows it. Counters only grow; it shows them as rates.
struct LiveField {
    const char* key;  // in JSON
    const char* heading;
    const char* help;
    bool counter;
};

enum class EndpointValue : unsigned {
    kInlined,
    kEager,
    kGathered,
    kByRing,
    kRendezvous,
    kTuple,
    kRma,
    kAtomics,
    kReceived,
    kUnexpected,
    kPeers,
    kUnderWay,
    kHeld,
    kAnswers,
    kReceives,
    kMessages,
    kTuplesOut,
    kTuplesIn,
    kCount
};
enum class ProcessValue : unsigned {
    kContexts,
    kQps,
    kCqs,
    kMrs,
    kUars,
    kUuars,
    kRegistrations,
    kHits,
    kEvictions,
    kInvalidations,
    kEndpoints,
    kCount
};
inline constexpr std::size_t kEndpointValues = static_cast<std::size_t>(EndpointValue::kCount);
inline constexpr std::size_t kProcessValues = static_cast<std::size_t>(ProcessValue::kCount);
extern const std::array<LiveField, kEndpointValues> kEndpointFields;
extern const std::array<LiveField, kProcessValues> kProcessFields;

using EndpointValues = std::array<std::uint64_t, kEndpointValues>;
using ProcessValues = std::array<std::uint64_t, kProcessValues>;

template <std::size_t kValues>
struct LiveBlock {
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> written_ns{0};  // CLOCK_MONOTONIC
    std::array<std::atomic<std::uint64_t>, kValues> values{};
};
struct LiveSlot {
    std::atomic<std::uint64_t> endpoint{0};  // its number
    LiveBlock<kEndpointValues> block;
};
struct LiveHeader {
    std::uint32_t magic = kLiveMagic, version = kLiveVersion;
    std::uint32_t endpoint_values = kEndpointValues, process_values = kProcessValues;
    std::uint32_t slots = kLiveSlots;
    std::int32_t pid = 0;  // in its own namespace
    char device[64] = "", category[32] = "", rank[16] = "";
    LiveBlock<kProcessValues> process;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::size_t live_bytes(std::uint32_t slots) noexcept {
    return sizeof(LiveHeader) + slots * sizeof(LiveSlot);
}

// The values read from a segment.
struct LiveEndpoint {
    std::uint32_t slot = 0;
    std::uint64_t number = 0, written_ns = 0;
    EndpointValues values{};
};
struct LiveProcess {
    int pid = 0;
    std::string device, category, rank;
    std::uint64_t written_ns = 0;
    ProcessValues values{};
    std::vector<LiveEndpoint> endpoints;
};

// Reads a segment, whose bytes another process may change at any time to any value. Returns nullopt
// if it is not a segment of this version. A block that is being written at each attempt is left
// out.
std::optional<LiveProcess> read_live(std::span<const std::byte> segment);

// Publishes a block of values. One thread at a time writes a block.
template <std::size_t kValues>
void write_live(LiveBlock<kValues>& block, const std::array<std::uint64_t, kValues>& values,
                std::uint64_t now_ns) noexcept {
    const std::uint64_t sequence = block.sequence.load(std::memory_order_relaxed);
    block.sequence.store(sequence | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    block.written_ns.store(now_ns, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kValues; ++i)
        block.values[i].store(values[i], std::memory_order_relaxed);
    block.sequence.store((sequence | 1) + 1, std::memory_order_release);
}

}  // namespace heddle::provider
