// SPDX-License-Identifier: BSD-2-Clause
// Payload in packets of the path MTU, as on a wire, for the traits `packets` (with pauses between
// them) and `reorder` (the last one first). IBTA 9.7.4 gives a message no order in memory before
// its completion (o9-20), and adapters place packets in the order of their arrival.
#pragma once

#include <algorithm>

#include "softhca/base/options.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

// Whether one of these traits is set.
inline bool by_packets() noexcept {
    static const bool chosen =
        options().device.has(DeviceTrait::kPackets) || options().device.has(DeviceTrait::kReorder);
    return chosen;
}

// The path MTU in bytes, a power of two.
inline unsigned mtu_shift(const device::QueuePair& qp) noexcept {
    return 7u + std::clamp<unsigned>(qp.attr.path_mtu, 1, 5);
}

// The payload of one packet of the smallest MTU, in bytes. If a trait splits payload into packets,
// the fast path takes no more.
inline constexpr std::uint64_t kSmallestPacket = 256;

[[gnu::cold, gnu::noinline]] Moved move_packets(device::Fabric& fabric,
                                                const device::QueuePair& requester,
                                                const SpanList& source,
                                                const SpanList& target) noexcept;

// Moves the payload of a message of that QP, or of the response to it. As move().
inline Moved move_payload(device::Fabric& fabric, const device::QueuePair& requester,
                          const SpanList& source, const SpanList& target) noexcept {
    if (by_packets()) [[unlikely]]
        return move_packets(fabric, requester, source, target);
    return move(fabric, source, target);
}

}  // namespace softhca::engine
