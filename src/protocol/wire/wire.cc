// SPDX-License-Identifier: BSD-2-Clause
// The one place where received bytes become a Message: every length, count and flag is checked
// here, so that what works on a Message need not.
#include "protocol/wire/wire.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "heddle/detail/assert.h"
#include "protocol/common/atomic_ops.h"
#include "protocol/wire/shm_layout.h"

namespace heddle::protocol {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
static_assert(sizeof(SegmentBody) == 24 && sizeof(RailKeys) == 16 && sizeof(RailBody) == 56 &&
                  sizeof(RailsBody) == RailsBody::bytes(kOtherRails) && sizeof(RtsBody) == 24 &&
                  sizeof(CtsBody) == 32 && sizeof(FinBody) == 16 && sizeof(CreditBody) == 16 &&
                  sizeof(FragmentBody) == 16 && sizeof(DataBody) == 8 && sizeof(AtomicBody) == 32 &&
                  sizeof(AtomicReplyBody) == 16 && sizeof(RingBody) == 24 &&
                  sizeof(RingTakenBody) == 8 && sizeof(TupleOpenBody) == 40 &&
                  sizeof(TupleAnswerBody) == 32 && sizeof(TupleBeginBody) == 8 &&
                  sizeof(PlaceBody) == 16 && sizeof(TupleRevokeBody) == 16 &&
                  sizeof(TupleDrainedBody) == 16 && sizeof(TupleClosedBody) == 16 &&
                  sizeof(ShmOpenBody) == 40,
              "bodies travel as they lie in memory");

// Bytes of any alignment, taken from the front.
class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

    template <class T>
    bool read(T& out) noexcept {
        static_assert(std::is_trivially_copyable_v<T>);
        if (rest_.size() < sizeof(T)) return false;
        std::memcpy(&out, rest_.data(), sizeof(T));
        rest_ = rest_.subspan(sizeof(T));
        return true;
    }
    std::span<const std::byte> rest() const noexcept { return rest_; }
    bool at_end() const noexcept { return rest_.empty(); }

private:
    std::span<const std::byte> rest_;
};

bool flags_allowed(Kind kind, std::uint8_t flags) noexcept {
    switch (kind) {
        case Kind::kEager:
        case Kind::kFragment:
            return (flags & ~(Header::kTagged | Header::kWideData)) == 0;
        case Kind::kRts:
            return (flags &
                    ~(Header::kTagged | Header::kWideData | Header::kPut | Header::kLater)) == 0;
        case Kind::kData:
        case Kind::kAtomic:
            return (flags & ~Header::kWideData) == 0;
        case Kind::kCts:
        case Kind::kFin:
        case Kind::kCredit:
        case Kind::kAtomicReply:
        case Kind::kRing:
        case Kind::kRingTaken:
        case Kind::kRingStop:
        case Kind::kRingEnd:
        case Kind::kTupleOpen:
        case Kind::kTupleAnswer:
        case Kind::kTupleBegin:
        case Kind::kTupleRevoke:
        case Kind::kTupleDrained:
        case Kind::kTupleClosed:
        case Kind::kTupleEnd:
        case Kind::kShmOpen:
        case Kind::kShmBegin:
        case Kind::kShmWake:
        case Kind::kRails:
            return flags == 0;
    }
    return false;  // an unknown kind
}

// Control between the two protocols has no completion that could carry data.
bool data_allowed(Kind kind) noexcept {
    return kind == Kind::kEager || kind == Kind::kFragment || kind == Kind::kRts ||
           kind == Kind::kData || kind == Kind::kAtomic;
}

bool in_address_space(std::uint64_t address, std::uint64_t bytes) noexcept {
    return bytes <= std::numeric_limits<std::uint64_t>::max() - address;
}

// `count` segments of memory which hold `bytes` together, and nothing behind them.
bool read_segments(Reader& reader, std::uint32_t count, std::uint64_t bytes, bool has_rail_keys,
                   Segment* out) noexcept {
    if (count > kMaxSegments || (count == 0 && bytes != 0)) return false;
    for (std::uint32_t i = 0; i < count; ++i) {
        SegmentBody& segment = out[i];
        if (!reader.read(segment) || segment.bytes > bytes) return false;
        if (!in_address_space(segment.address, segment.bytes)) return false;
        bytes -= segment.bytes;
        if (has_rail_keys && !reader.read(out[i].rail_keys)) return false;
    }
    return bytes == 0 && reader.at_end();
}

bool read_rails(Reader& reader, RailsBody& out) noexcept {
    if (!reader.read(out.speed) || !reader.read(out.count) || out.speed == 0 ||
        out.count > kOtherRails)
        return false;
    for (std::uint32_t i = 0; i < out.count; ++i)
        if (!reader.read(out.rails[i]) || out.rails[i].speed == 0 || !out.rails[i].name.valid())
            return false;
    return reader.at_end();
}

bool rts_flags_allowed(std::uint32_t flags) noexcept {
    return flags == 0 || flags == RtsBody::kByProcess || flags == RtsBody::kRailKeys;
}

bool atomic_allowed(const AtomicBody& body, std::size_t payload) noexcept {
    if ((body.flags & ~(AtomicBody::kFetch | AtomicBody::kCompare)) != 0 || body.count == 0)
        return false;
    const bool compare = (body.flags & AtomicBody::kCompare) != 0;
    const bool fetch = (body.flags & AtomicBody::kFetch) != 0;
    const AtomicCall call = compare ? AtomicCall::kCompare
                            : fetch ? AtomicCall::kFetch
                                    : AtomicCall::kWrite;
    if (!atomic_valid(call, body.datatype, body.op)) return false;
    HEDDLE_DEBUG_ASSERT(compare == (atomic_operands(body.op) == 2),
                        "atomic_valid() knows which operations compare");
    const std::uint64_t bytes = std::uint64_t{body.count} * atomic_size(body.datatype);
    HEDDLE_DEBUG_ASSERT(bytes != 0, "atomic_valid() knows the datatype");
    return in_address_space(body.address, bytes) && bytes * atomic_operands(body.op) == payload;
}

bool fragment_allowed(const FragmentBody& body, std::size_t payload) noexcept {
    return payload != 0 && body.offset < body.bytes && payload <= body.bytes - body.offset;
}

bool ring_allowed(const RingBody& body) noexcept {
    return std::has_single_bit(body.slots) && body.slots <= kMostRingSlots &&
           body.slot_bytes >= kLeastRingSlot && body.slot_bytes <= kMostRingSlot &&
           body.slot_bytes % alignof(std::uint64_t) == 0 &&
           body.address % alignof(std::uint64_t) == 0 &&
           in_address_space(body.address, std::uint64_t{body.slots} * body.slot_bytes);
}

bool tuple_open_allowed(const TupleOpenBody& body) noexcept {
    return (body.flags & ~TupleOpenBody::kHasData) == 0 &&
           body.credits % alignof(std::uint64_t) == 0 &&
           in_address_space(body.credits, kTupleDepth * sizeof(std::uint64_t));
}

}  // namespace

bool parse(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
           Message& out) noexcept {
    Reader reader(bytes);
    Header& header = out.header;
    if (!reader.read(header) || !flags_allowed(header.kind, header.flags)) return false;
    HEDDLE_DEBUG_ASSERT(header.kind >= Kind::kEager && header.kind <= Kind::kLast,
                        "flags_allowed() knows all kinds");

    const bool wide = (header.flags & Header::kWideData) != 0;
    HEDDLE_DEBUG_ASSERT(!wide || data_allowed(header.kind),
                        "a kind with wide data may have an immediate, too");
    if (has_immediate && (wide || !data_allowed(header.kind))) return false;
    out.has_data = wide || has_immediate;
    out.data = immediate;
    if (wide) {
        if (!reader.read(out.data)) return false;
    } else if (!has_immediate) {
        out.data = 0;
    }

    out.place = {};
    if (header.flags & Header::kLater && !reader.read(out.place)) return false;

    bool good = false;
    switch (header.kind) {
        case Kind::kEager:
            good = true;
            break;
        case Kind::kFragment:
            good =
                reader.read(out.fragment) && fragment_allowed(out.fragment, reader.rest().size());
            break;
        case Kind::kRts:
            if (!reader.read(out.rts)) return false;
            good = (header.flags & Header::kPut) != 0
                       ? out.rts.segments == 0 && out.rts.flags == 0 && reader.at_end()
                       : rts_flags_allowed(out.rts.flags) &&
                             read_segments(reader, out.rts.segments, out.rts.bytes,
                                           out.rts.flags == RtsBody::kRailKeys, out.segments);
            break;
        case Kind::kCts:
            good = reader.read(out.cts) &&
                   read_segments(reader, out.cts.segments, out.cts.bytes, false, out.segments);
            break;
        case Kind::kFin:
            good = reader.read(out.fin) && out.fin.put <= 1 && reader.at_end();
            break;
        case Kind::kCredit:
            good = reader.read(out.credit) && reader.at_end();
            break;
        case Kind::kData:
            good = out.has_data && reader.read(out.written) && reader.at_end();
            break;
        case Kind::kAtomic:
            good = reader.read(out.atomic) && atomic_allowed(out.atomic, reader.rest().size());
            break;
        case Kind::kAtomicReply:
            good = reader.read(out.atomic_reply) && out.atomic_reply.bytes == reader.rest().size();
            break;
        case Kind::kRing:
            good = reader.read(out.ring) && ring_allowed(out.ring) && reader.at_end();
            break;
        case Kind::kRingTaken:
            good = reader.read(out.ring_taken) && reader.at_end();
            break;
        case Kind::kRingStop:
        case Kind::kRingEnd:
        case Kind::kShmBegin:
        case Kind::kShmWake:
            good = reader.at_end();
            break;
        case Kind::kTupleOpen:
            good = reader.read(out.tuple_open) && tuple_open_allowed(out.tuple_open) &&
                   reader.at_end();
            break;
        case Kind::kTupleAnswer:
            good = reader.read(out.tuple_answer) && out.tuple_answer.srqn < 1u << 24 &&
                   reader.at_end();
            break;
        case Kind::kTupleBegin:
        case Kind::kTupleEnd:
            good = reader.read(out.tuple_begin) && reader.at_end();
            break;
        case Kind::kTupleRevoke:
            good = reader.read(out.tuple_revoke) && reader.at_end();
            break;
        case Kind::kTupleDrained:
            good = reader.read(out.tuple_drained) && out.tuple_drained.qpn < 1u << 24 &&
                   reader.at_end();
            break;
        case Kind::kTupleClosed:
            good = reader.read(out.tuple_closed) && reader.at_end();
            break;
        case Kind::kShmOpen:
            good = reader.read(out.shm_open) &&
                   ShmShape{out.shm_open.slots, out.shm_open.area_bytes}.is_possible() &&
                   reader.at_end();
            break;
        case Kind::kRails:
            good = read_rails(reader, out.rails);
            break;
    }
    out.payload = reader.rest();
    HEDDLE_DEBUG_ASSERT(!good || (header.flags & Header::kLater) == 0 || header.kind == Kind::kRts,
                        "only an RTS has a place");
    return good;
}

}  // namespace heddle::protocol
