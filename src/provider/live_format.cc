// SPDX-License-Identifier: BSD-2-Clause
#include "provider/live_format.h"

#include <cstring>

#include "heddle/detail/assert.h"

namespace heddle::provider {
namespace {

constexpr int kAttempts = 100;

// The seqlock of Boehm, "Can seqlocks get along with programming language memory models?" (2012),
// figure 6: the values are valid if the sequence is the same before and after. ThreadSanitizer
// ignores fences.
template <std::size_t kValues>
bool read_block(const LiveBlock<kValues>& block, std::array<std::uint64_t, kValues>& out,
                std::uint64_t& written_ns) noexcept {
    for (int i = 0; i < kAttempts; ++i) {
        const std::uint64_t before = block.sequence.load(std::memory_order_acquire);
        if (before == 0) return false;
        if (before & 1) continue;
        written_ns = block.written_ns.load(std::memory_order_relaxed);
        for (std::size_t value = 0; value < kValues; ++value)
            out[value] = block.values[value].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (block.sequence.load(std::memory_order_relaxed) == before) return true;
    }
    return false;
}

// Returns the text up to its end or the end of the array, with "?" for what could harm a terminal.
template <std::size_t kBytes>
std::string text_of(const char (&from)[kBytes]) {
    std::string text;
    for (const char c : from) {
        if (c == '\0') break;
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

}  // namespace

const std::array<LiveField, kEndpointValues> kEndpointFields = {{
    {"inlined", "inline", "messages sent inline", true},
    {"eager", "eager", "messages sent eagerly, with what is gathered", true},
    {"gathered", "place", "of those, gathered without a copy", true},
    {"by_ring", "ring", "messages written into the peer's ring", true},
    {"rendezvous", "rndv", "messages sent by rendezvous", true},
    {"tuple", "tuple", "messages sent to tuple queues", true},
    {"rma", "RMA", "RMA operations", true},
    {"atomics", "atomic", "atomic operations", true},
    {"received", "in", "messages received", true},
    {"unexpected", "unexp", "of those, arrived before their receives", true},
    {"peers", "peers", "connections to others", false},
    {"under_way", "queued", "work requests at the device", false},
    {"held", "held", "operations that wait for room, credit or a connection", false},
    {"answers", "asked", "replies that peers owe", false},
    {"receives", "recvs", "receives that wait for messages", false},
    {"messages", "early", "messages that wait for receives", false},
    {"tuples_out", "tq out", "tuple queues that it sends to, or has requested", false},
    {"tuples_in", "tq in", "tuple queues that it receives from", false},
}};

const std::array<LiveField, kProcessValues> kProcessFields = {{
    {"contexts", "ctx", "device contexts", false},
    {"qps", "QPs", "queue pairs", false},
    {"cqs", "CQs", "completion queues", false},
    {"mrs", "MRs", "memory regions", false},
    {"uars", "UARs", "UAR pages", false},
    {"uuars", "uUARs", "doorbell registers", false},
    {"registrations", "reg", "memory registrations for operations", true},
    {"registration_hits", "hit", "operations on memory that was registered", true},
    {"registration_evictions", "evict", "registrations ended for lack of room", true},
    {"registration_invalidations", "gone", "registrations ended as memory was unmapped", true},
    {"endpoints", "EPs", "endpoints", false},
}};

std::optional<LiveProcess> read_live(std::span<const std::byte> segment) {
    if (segment.size() < sizeof(LiveHeader) ||
        reinterpret_cast<std::uintptr_t>(segment.data()) % alignof(LiveHeader) != 0)
        return {};
    const auto& header = *reinterpret_cast<const LiveHeader*>(segment.data());
    // Read once, since the writer may change it at any time.
    const std::uint32_t slots = __atomic_load_n(&header.slots, __ATOMIC_RELAXED);
    if (header.magic != kLiveMagic || header.version != kLiveVersion ||
        header.endpoint_values != kEndpointValues || header.process_values != kProcessValues ||
        slots > kMostLiveSlots || segment.size() < live_bytes(slots))
        return {};
    LiveProcess process;
    process.pid = header.pid;
    process.device = text_of(header.device);
    process.category = text_of(header.category);
    process.rank = text_of(header.rank);
    read_block(header.process, process.values, process.written_ns);
    const auto* const first =
        reinterpret_cast<const LiveSlot*>(segment.data() + sizeof(LiveHeader));
    for (std::uint32_t i = 0; i < slots; ++i) {
        LiveEndpoint endpoint;
        endpoint.slot = i;
        endpoint.number = first[i].endpoint.load(std::memory_order_relaxed);
        HEDDLE_ASSERT(reinterpret_cast<const std::byte*>(&first[i] + 1) <=
                      segment.data() + segment.size());
        if (read_block(first[i].block, endpoint.values, endpoint.written_ns))
            process.endpoints.push_back(endpoint);
    }
    return process;
}

}  // namespace heddle::provider
