// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/packets.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "softhca/base/assert.h"

namespace softhca::engine {

using device::Fabric;
using device::QueuePair;

namespace {

// The number of pauses in a message. A long message has no more than a short one, or it would take
// minutes.
constexpr std::size_t kMostPauses = 8;

// Between 10 and 73 microseconds, chosen by the seed. A scheduler makes it longer.
void pause_between() noexcept {
    static std::atomic<std::uint64_t> state{0};
    const std::uint64_t next =
        (state.load(std::memory_order_relaxed) ^ options().device.seed()) * 6364136223846793005u +
        1442695040888963407u;
    state.store(next, std::memory_order_relaxed);
    const timespec time{0, static_cast<long>(10 + (next >> 58)) * 1000};
    nanosleep(&time, nullptr);
}

// `length` bytes of a span list from `offset` on. False: there is no memory for as many spans.
bool slice(const SpanList& list, std::size_t offset, std::size_t length, SpanList& out) noexcept {
    out.clear(list.process);
    for (unsigned i = 0; i < list.count && length != 0; ++i) {
        const Span& span = list.spans[i];
        if (offset >= span.length) {
            offset -= span.length;
            continue;
        }
        const std::size_t part = std::min(span.length - offset, length);
        if (!out.has_room()) return false;
        const Span rest = span.from(offset);
        out.add(rest.pointer, rest.address, part);
        length -= part;
        offset = 0;
    }
    SOFTHCA_ASSERT(length == 0, "the slice lies within the list");
    return true;
}

}  // namespace

Moved move_packets(Fabric& fabric, const QueuePair& requester, const SpanList& source,
                   const SpanList& target) noexcept {
    const DeviceTraits& traits = options().device;
    const std::size_t mtu = std::size_t{1} << mtu_shift(requester);
    const std::size_t bytes = std::min(source.bytes, target.bytes);
    const std::size_t packets = (bytes + mtu - 1) / mtu;
    if (packets < 2) return move(fabric, source, target);
    const bool reorders = traits.has(DeviceTrait::kReorder);
    const bool pauses = traits.has(DeviceTrait::kPackets);
    const std::size_t pause_every = std::max<std::size_t>(1, (packets - 1) / kMostPauses);
    SpanList from, to;
    for (std::size_t n = 0; n < packets; ++n) {
        // The last packet, then the others in order.
        const std::size_t packet = !reorders ? n : n == 0 ? packets - 1 : n - 1;
        SOFTHCA_ASSERT(packet < packets, "each packet is sent once");
        const std::size_t at = packet * mtu, length = std::min(mtu, bytes - at);
        if (!slice(source, at, length, from) || !slice(target, at, length, to))
            return Moved::kRefused;
        SOFTHCA_ASSERT(from.bytes == to.bytes, "a packet has the same bytes on both sides");
        if (const Moved moved = move(fabric, from, to); moved != Moved::kOk) return moved;
        if (n + 1 == packets) break;
        if (n == 0 || (pauses && n % pause_every == 0)) pause_between();
    }
    return Moved::kOk;
}

}  // namespace softhca::engine
