// SPDX-License-Identifier: BSD-2-Clause
// How large the verbs objects of a channel are, and how it numbers their entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "protocol/common/options.h"
#include "protocol/transport/dc_initiators.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// Ids of receives carry the buffer's number, those of sends connection << 32 | number of the work.
inline constexpr std::uint64_t kReceive = std::uint64_t{1} << 63;
// Under way at once there are mostly fewer.
inline constexpr std::uint32_t kFewWorks = 32;
// A connection's send queue begins with so many entries.
inline std::uint32_t first_depth(const Options& options) noexcept {
    return options.transport == Transport::kDc ? options.send_depth
                                               : std::min(options.send_depth, kFewWorks);
}
// Around the payload of the largest eager message: wide data, and the tail that rings have.
inline constexpr std::size_t kHeaderRoom = sizeof(Header) + 8 + sizeof(RingTail);
// RTS with all its segments must fit, whatever eager_bytes is.
inline constexpr std::size_t kLeastBuffer = 512;
// The last of so many WRs of a connection is signaled, so that the others are known to be done.
inline constexpr std::uint32_t kSignalEvery = 32;
// Receives are given back to the device so many at a time.
inline constexpr std::uint32_t kReceivesAtOnce = 16;
inline constexpr std::uint32_t kMostReceives = 16384;
// Entries of the CQ for WRs of send queues, if the device has CQs of that size. With some 1000
// receive buffers a CQ has 4096 entries, as many as with a few hundred.
inline constexpr std::uint32_t kSendEntries = 3000;
// Only signal_behind() may use the last of these entries. When all others are taken, each
// connection can still be asked which of its WRs are done.
inline constexpr std::uint32_t kReservedEntries = 64;

// What is in front of each message.
inline std::uint32_t prefix_bytes(const Options& options) noexcept {
    return options.transport == Transport::kDc ? sizeof(DcPrefix) : 0;
}

inline std::size_t buffer_bytes(const Options& options) {
    return std::max(options.eager_bytes + kHeaderRoom, kLeastBuffer) + prefix_bytes(options);
}

// What options.receive_bytes gives room for, and the numbers of an SRQ's entries.
inline std::uint32_t most_receives(const Options& options) {
    const std::size_t most =
        std::min(options.receive_bytes / buffer_bytes(options), std::size_t{kMostReceives});
    return std::max(options.receive_buffers, static_cast<std::uint32_t>(most));
}

}  // namespace heddle::protocol
