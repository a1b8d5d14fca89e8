// SPDX-License-Identifier: BSD-2-Clause
// What travels in a SEND between two endpoints. Every message begins with a Header of 16 bytes, so
// that one of 8 bytes fills an entry of 64 with it: control, XRC and inline segments take 36.
// Remote CQ data of 32 bits travels in the immediate; wider data in 8 bytes behind the header.
// All fields are little-endian, as both architectures are.
//
// Bytes come from another process: nothing here is used before `parse` has checked it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "protocol/common/endpoint_address.h"

namespace heddle::protocol {

enum class Kind : std::uint8_t {
    kEager = 1,    // the payload follows
    kRts,          // rendezvous: RtsBody and its segments follow; the payload is with the sender
    kCts,          // RPUT: where the sender may write to; CtsBody and segments
    kFin,          // RGET: all was read. RPUT: all was written. FinBody
    kCredit,       // so many bytes of eager payload were taken away. CreditBody
    kData,         // remote CQ data of an RMA write that was posted before. DataBody
    kAtomic,       // AtomicBody, operands, compare values
    kAtomicReply,  // AtomicReplyBody, the values there were
    kRing,         // where eager messages may be written to from now on (eager_ring.h). RingBody
    kRingTaken,    // so many of its buffers were emptied. RingTakenBody
    kRingStop,     // no more of them may be used. To the writer: no body
    kRingEnd,      // none will be: all that were written had been before this. No body
    // Tuple queues (tuple.h). The sender of messages of that tag: open, begin, drained; the
    // receiver the rest.
    kTupleOpen,     // may it have a queue? TupleOpenBody
    kTupleAnswer,   // TupleAnswerBody
    kTupleBegin,    // messages from here on go to the queue. TupleBeginBody
    kTupleRevoke,   // no more may be sent to the queue. TupleRevokeBody
    kTupleDrained,  // none will be, and none is under way. TupleDrainedBody
    kTupleClosed,   // so many had come; the queue is gone. TupleClosedBody
    kTupleEnd,      // the rest has been sent otherwise. TupleBeginBody
    kFragment,      // of an eager message: FragmentBody, a part of the payload
    // Shared memory (local/local_peers.h). All of them go to the receiver of messages.
    kShmOpen,   // here is a ring for messages. ShmOpenBody
    kShmBegin,  // messages from here on may lie in it. No body
    kShmWake,   // something lies in it, and the receiver sleeps. No body
    kRails,     // other ports of the sender, over which it may be read from. RailsBody
    kLast = kRails,
};

struct Header {
    enum Flags : std::uint8_t {
        kTagged = 1,
        kWideData = 2,  // 8 bytes of remote CQ data follow the header
        kPut = 4,       // of an RTS: by RPUT
        kLater = 8,     // of an RTS: it has a place before others; PlaceBody follows the data
    };
    Kind kind = Kind::kEager;
    std::uint8_t flags = 0;
    std::uint16_t source = 0;       // endpoint of the sending process
    std::uint16_t destination = 0;  // endpoint of the receiving process
    std::uint16_t sequence = 0;     // of what is_sequenced(): of this pair of endpoints, from 0
    std::uint64_t tag = 0;
};
static_assert(sizeof(Header) == 16);
// All of a header but its tag, as one number; the sequence is its highest part.
inline std::uint64_t word_at(const void* at) noexcept {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return word;
}
inline std::uint64_t start_of(const Header& header) noexcept { return word_at(&header); }
inline std::uint16_t destination_of(const std::byte* header) noexcept {
    return static_cast<std::uint16_t>(word_at(header) >> 32);
}
inline std::uint16_t source_of(const std::byte* header) noexcept {
    return static_cast<std::uint16_t>(word_at(header) >> 16);
}
// Does its header have a sequence number?
inline bool is_sequenced(Kind kind) noexcept {
    return kind == Kind::kEager || kind == Kind::kRts || kind == Kind::kAtomic ||
           kind == Kind::kTupleBegin || kind == Kind::kFragment;
}
inline constexpr std::uint64_t kTaggedStart = std::uint64_t{Header::kTagged} << 8;
inline constexpr std::uint64_t kSequenceOfStart = std::uint64_t{1} << 48;

inline constexpr std::size_t kMaxSegments = 8;
// Ports that an endpoint reads from or is read over, its own among them; and the others.
inline constexpr std::size_t kMostRails = 4, kOtherRails = kMostRails - 1;
// Limits of the rings that a peer may offer.
inline constexpr std::uint32_t kMostRingSlots = 1 << 16, kLeastRingSlot = 64,
                               kMostRingSlot = (1 << 20) + 256;
// Receives that a tuple's queue holds.
inline constexpr std::uint32_t kTupleDepth = 32;
// What may be under way to an endpoint, by weight: a message with more than kFreeBytes of payload,
// or a fragment, weighs one, and one more for each 2 KiB. It tells of a third of that when it has
// arrived.
inline constexpr std::uint32_t kWindow = 192, kArrivedAtOnce = kWindow / 3;
constexpr std::uint32_t weight_of(std::size_t payload) noexcept {
    return 1 + static_cast<std::uint32_t>(payload / 2048);
}
// Eager payload up to this is never held back: at the receiver it takes no more than a rendezvous
// request would. More of it counts against the credit of the sender, until CreditBody.
inline constexpr std::size_t kFreeBytes = 128;

// A segment of registered memory of the peer.
struct SegmentBody {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t key = 0;
    std::uint32_t reserved = 0;
};
// Behind a segment, of an RTS with kRailKeys: its keys at the other rails of the sender, in the
// order of its RailsBody.
struct RailKeys {
    std::uint32_t at[kOtherRails];
    std::uint32_t reserved;
};
struct Segment : SegmentBody {
    RailKeys rail_keys{};  // with kRailKeys
};
inline std::size_t bytes_of(const SegmentBody& segment) noexcept { return segment.bytes; }

// The place of a message that left a tuple's queue: how many sequenced messages were sent after it
// was asked for, and a number to order those that belong between the same two.
struct PlaceBody {
    std::uint64_t behind = 0;
    std::uint32_t order = 0;
    std::uint32_t reserved = 0;
};
struct RtsBody {
    // The segments have no keys: the receiver's processor reads them (shm/process_memory.h).
    static constexpr std::uint32_t kByProcess = 1;
    static constexpr std::uint32_t kRailKeys = 2;  // RailKeys follow each segment
    std::uint64_t operation = 0;                   // the sender's: comes back in CTS and FIN
    std::uint64_t bytes = 0;                       // of the message
    std::uint32_t segments = 0;  // that follow; their bytes add up to `bytes`. RPUT: none
    std::uint32_t flags = 0;     // kByProcess, kRailKeys, or 0
};
struct CtsBody {
    std::uint64_t operation = 0;  // of the sender
    std::uint64_t receive = 0;    // the receiver's: comes back in FIN
    std::uint64_t bytes = 0;      // to write: less than the message has where it is truncated
    std::uint32_t segments = 0;
    std::uint32_t reserved = 0;
};
struct FinBody {
    std::uint64_t operation = 0;
    std::uint32_t status = 0;  // 0, or an errno of the peer
    std::uint32_t put = 0;     // 1: to the receiver of an RPUT
};
// A status as the error that is reported: one that no system has is no error number.
inline int errno_of(std::uint32_t status) noexcept {
    constexpr std::uint32_t kMostErrno = 4095;
    return status <= kMostErrno ? static_cast<int>(status) : EPROTO;
}
struct CreditBody {
    std::uint64_t bytes = 0;   // of payload, that have left the receiver's memory
    std::uint64_t weight = 0;  // of messages that have left its receive buffers
};
// Fragments of a message come one behind the other, from offset 0, and no other sequenced message
// between them. All have the same sequence number, flags, tag and data.
struct FragmentBody {
    std::uint64_t bytes = 0;   // of the message
    std::uint64_t offset = 0;  // of this part of it, which has at least a byte
};
struct DataBody {
    std::uint64_t bytes = 0;  // that were written
};
struct AtomicBody {
    enum Flags : std::uint8_t { kFetch = 1, kCompare = 2 };  // kCompare: with kFetch or without
    std::uint64_t operation = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t count = 0;
    std::uint8_t datatype = 0, op = 0, flags = 0, reserved[5] = {};
};
struct AtomicReplyBody {
    std::uint64_t operation = 0;
    std::uint32_t status = 0;
    std::uint32_t bytes = 0;  // that follow
};
struct RingBody {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t slots = 0;       // a power of two
    std::uint32_t slot_bytes = 0;  // of each
    std::uint32_t reserved = 0;
};
struct RingTakenBody {
    std::uint32_t taken = 0;  // since the ring was offered; free-running
    std::uint32_t reserved = 0;
};

// The tuple is its number at the receiver of the message.
struct TupleOpenBody {
    std::uint64_t sender = 0;   // the sender's number of it
    std::uint64_t mask = 0;     // of ignored bits, as the sender knows it
    std::uint64_t credits = 0;  // where the receiver writes what it has posted (TupleCredit)
    std::uint64_t data = 0;     // remote CQ data of each of its messages
    std::uint32_t credits_key = 0;
    std::uint32_t flags = 0;
    static constexpr std::uint32_t kHasData = 1;
};
struct TupleAnswerBody {
    std::uint64_t tuple = 0;
    std::uint64_t receiver = 0;  // the receiver's number of it; of no meaning when it declines
    std::uint64_t mask = 0;
    std::uint32_t srqn = 0;
    std::uint32_t declined = 0;  // a TupleReason
};
struct TupleBeginBody {
    std::uint64_t tuple = 0;
};
struct TupleRevokeBody {
    std::uint64_t tuple = 0;
    std::uint32_t reason = 0;  // a TupleReason
    std::uint32_t reserved = 0;
};
struct TupleDrainedBody {
    std::uint64_t tuple = 0;
    std::uint32_t delivered = 0;  // at least; free-running
    std::uint32_t qpn = 0;  // of the sender's queue from which more may have been; 0: from none
};
struct TupleClosedBody {
    std::uint64_t tuple = 0;
    std::uint32_t delivered = 0;
    std::uint32_t reserved = 0;
};

struct ShmOpenBody {
    std::uint64_t nonce = 0;         // in the memory, too
    std::uint64_t word_address = 0;  // both: of the sender's ProcessMemory
    std::uint64_t word = 0;
    std::uint32_t process = 0;     // the sender's number
    std::uint32_t descriptor = 0;  // of the memory, there
    std::uint32_t slots = 0;       // both: ShmShape
    std::uint32_t area_bytes = 0;
};

// An endpoint of the sender at another port: it is read from, and takes no messages.
struct RailBody {
    EndpointAddress name;
    std::uint32_t speed = 0;  // as RailsBody's
    std::uint32_t reserved = 0;
};
struct RailsBody {
    std::uint32_t speed = 0;      // of the port that the message comes from, in Mb/s; not 0
    std::uint32_t count = 0;      // of the others
    RailBody rails[kOtherRails];  // as many of them travel
    // Bytes that travel.
    static constexpr std::size_t bytes(std::uint32_t count) noexcept {
        return 2 * sizeof(std::uint32_t) + count * sizeof(RailBody);
    }
};

// Behind a message in an eager ring (ring/eager_ring.h).
struct RingTail {
    std::uint32_t immediate = 0;  // remote CQ data
    std::uint32_t flags = 0;      // kImmediate
    // These two are stored at once.
    std::uint32_t bytes = 0;  // before the tail
    std::uint32_t round = 0;  // from 1

    static constexpr std::uint32_t kImmediate = 1;
};
static_assert(sizeof(RingTail) == 16);

// A message as it was received. Body and segments may lie at any alignment: they are copied out.
struct Message {
    Header header;
    std::uint64_t data = 0;
    bool has_data = false;
    PlaceBody place;                     // kRts with kLater
    std::span<const std::byte> payload;  // behind the header, the data, and the body of its kind
    union {
        RtsBody rts;
        CtsBody cts;
        FinBody fin;
        CreditBody credit;
        FragmentBody fragment;
        DataBody written;
        AtomicBody atomic;
        AtomicReplyBody atomic_reply;
        RingBody ring;
        RingTakenBody ring_taken;
        TupleOpenBody tuple_open;
        TupleAnswerBody tuple_answer;
        TupleBeginBody tuple_begin;
        TupleRevokeBody tuple_revoke;
        TupleDrainedBody tuple_drained;
        TupleClosedBody tuple_closed;
        ShmOpenBody shm_open;
        RailsBody rails;
    };
    union {                              // parse() writes as many as there are
        Segment segments[kMaxSegments];  // of kRts and kCts
    };
    Message() : rts() {}
};

// False: not a message of this protocol (too short or too long, an unknown kind, a flag that its
// kind does not have, data both ways, segments that do not add up); `out` holds nothing of use
// then. kTagged: kEager, kFragment and kRts. Remote CQ data, either way: those, kAtomic, and kData,
// which must have it. kPut: kRts. Whether a target is there to be written to is not known here.
bool parse(std::span<const std::byte> bytes, bool has_immediate, std::uint32_t immediate,
           Message& out) noexcept;

}  // namespace heddle::protocol
