// SPDX-License-Identifier: BSD-2-Clause
// Payload by packets of the path MTU, as a wire brings it, for the traits `packets` (with pauses
// between them) and `reorder` (the last one first). IBTA 9.7.4 gives a message no order in memory
// before its completion (o9-20), and adapters place packets in the order in which they arrive.
#pragma once

#include <algorithm>

#include "softhca/base/options.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

// One of these traits is chosen.
inline bool by_packets() noexcept {
    static const bool chosen =
        options().device.has(DeviceTrait::kPackets) || options().device.has(DeviceTrait::kReorder);
    return chosen;
}

// The path MTU is a power of two: this one.
inline unsigned mtu_shift(const device::QueuePair& qp) noexcept {
    return 7u + std::clamp<unsigned>(qp.attr.path_mtu, 1, 5);
}

// The payload of one packet of the smallest MTU, in bytes. Where payload goes by packets, the fast
// path takes no more.
inline constexpr std::uint64_t kSmallestPacket = 256;

[[gnu::cold, gnu::noinline]] Moved move_packets(device::Fabric& fabric,
                                                const device::QueuePair& requester,
                                                const SpanList& source,
                                                const SpanList& target) noexcept;

// The payload of a message of that QP, or of the answer to it. As move().
inline Moved move_payload(device::Fabric& fabric, const device::QueuePair& requester,
                          const SpanList& source, const SpanList& target) noexcept {
    if (by_packets()) [[unlikely]]
        return move_packets(fabric, requester, source, target);
    return move(fabric, source, target);
}

}  // namespace softhca::engine
