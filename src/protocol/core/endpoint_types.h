// SPDX-License-Identifier: BSD-2-Clause
// What callers of an endpoint hand in, and what they learn of it.
#pragma once

#include <rdma/fabric.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "protocol/common/completions.h"

namespace heddle::protocol {

// Flags are libfabric's operation flags (FI_INJECT, FI_COMPLETION, FI_INJECT_COMPLETE,
// FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_REMOTE_CQ_DATA, FI_TAGGED,
// FI_MORE, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MULTI_RECV). FI_COMPLETION: an entry is wanted (the
// caller has taken the endpoint's default and FI_SELECTIVE_COMPLETION into account).
//
// FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE and FI_MATCH_COMPLETE want the end of a message when
// more than this is known: that its buffer may be used again. Without these libfabric promises no
// more (fi_cq(3), "COMPLETION EVENT SEMANTICS").
constexpr bool may_report_early(std::uint64_t flags) noexcept {
    return !(flags & (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE));
}

struct SendArguments {
    const iovec* iov = nullptr;
    std::size_t iov_count = 0;
    void* const* descriptors = nullptr;  // of the application's regions, or nullptr
    std::uint64_t to = 0;                // fi_addr_t
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::uint64_t flags = 0;
    void* context = nullptr;
};
struct ReceiveArguments {
    const iovec* iov = nullptr;
    std::size_t iov_count = 0;
    std::uint64_t from = FI_ADDR_UNSPEC;
    std::uint64_t tag = 0, ignore = 0;
    std::uint64_t flags = 0;
    void* context = nullptr;
};
struct RmaSegment {
    std::uint64_t address, bytes, key;
};
struct RmaArguments {
    const iovec* iov = nullptr;
    std::size_t iov_count = 0;
    void* const* descriptors = nullptr;
    std::uint64_t to = 0;
    const RmaSegment* remote = nullptr;
    std::size_t remote_count = 0;
    std::uint64_t data = 0;
    std::uint64_t flags = 0;  // FI_READ or FI_WRITE besides
    void* context = nullptr;
};
// Operands, compare values and results are contiguous here: the provider gathers.
struct AtomicArguments {
    const void* operand = nullptr;
    const void* compare = nullptr;  // nullptr: not a compare operation
    iovec* results = nullptr;       // nullptr: nothing is fetched
    std::size_t result_count = 0;
    std::uint32_t count = 0;  // elements
    std::uint8_t datatype = 0, op = 0;
    std::uint64_t to = 0, address = 0, key = 0;
    std::uint64_t flags = 0;
    void* context = nullptr;
};

struct Bindings {
    Completions* transmit = nullptr;
    Completions* receive = nullptr;
    Counter *send_counter = nullptr, *receive_counter = nullptr, *read_counter = nullptr,
            *write_counter = nullptr, *remote_read_counter = nullptr,
            *remote_write_counter = nullptr;
};

// Messages that were read over several rails, and what came by others than the endpoint's own.
struct StripeCounts {
    std::uint64_t messages = 0, bytes = 0, again = 0;  // again: stripes whose rail failed
};
// Messages by shared memory; peers that send so; messages read from a peer's process.
struct ShmCounts {
    std::uint64_t sent = 0, received = 0, peers = 0, read = 0;
};
struct EndpointCounts {
    std::uint64_t eager = 0, inlined = 0, rendezvous = 0, rma = 0, atomics = 0, received = 0,
                  unexpected = 0, unexpected_bytes_peak = 0, connections = 0, protocol_errors = 0,
                  by_ring = 0, from_rings = 0, rings = 0, gathered = 0, rma_copied = 0,
                  rma_direct = 0, unregistered = 0;
    ShmCounts shm;
    StripeCounts stripes;
    // Eager messages that are not inline, by size: up to 2^i bytes, and more than half of that.
    static constexpr std::size_t kSizes = 21;
    static std::size_t size_index(std::size_t bytes) noexcept {
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes - 1)),
                                     kSizes - 1);
    }
    std::array<std::uint64_t, kSizes> copied_by_size{}, gathered_by_size{};
};

// What there is at this moment.
struct EndpointState {
    std::uint64_t peers = 0;                // connections
    std::uint64_t under_way = 0;            // works at the device, of the channel
    std::uint64_t held = 0;                 // operations that wait for room, credit or a connection
    std::uint64_t outstanding_replies = 0;  // that peers owe
    std::uint64_t receives = 0;             // posted, not to tuple queues
    std::uint64_t messages = 0;             // unexpected ones
    std::uint64_t tuples_out = 0;           // tuple queues sent to, or asked for
    std::uint64_t tuples_in = 0;
};

}  // namespace heddle::protocol
