// SPDX-License-Identifier: BSD-2-Clause
// Tuple queues ("TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand", IPDPS'09): what
// both sides of one agree on. A tuple is the messages of one endpoint to another whose tags are
// equal, except in the bits that every receive of the MPI ignores. It has a receive queue of its
// own at the receiver (an XRC SRQ), to which the application's buffers are posted; the sender
// addresses its SENDs to it. The device matches and places: there is no header, no copy, and after
// the posting no software on either side.
//
// How one begins and ends is in docs/architecture/protocol.md ("Tuple queues"); the sender's side
// is tuple_sender.cc, the receiver's tuple_receiver.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// Why a tuple has no queue, or has it no longer. Travels as a number; unknown ones are "other".
enum class TupleReason : std::uint32_t {
    kNone,
    kOther,
    kMask,      // the sender did not know which bits of tags are ignored
    kManyBits,  // more bits are ignored than an immediate has room for
    kWildcard,  // a receive that could take other messages, too, or a probe
    kReceive,  // a receive that cannot be posted: several SGEs, or memory that cannot be registered
    kCancel,   // of a receive
    kLimit,    // as many as there may be; or the least recently used of those
    kDevice,   // the device has no more
    kLate,     // receives were mostly posted after their messages had been sent
    kTruncation,    // a message longer than its receive
    kOtherMessage,  // one that is too large for one SEND, or with other remote CQ data
    kClosing,       // the endpoint is
    kSmall,         // messages were mostly as short as eager ones, which cost less
    kCount,
};
const char* text_of(TupleReason reason) noexcept;
inline TupleReason reason_of(std::uint32_t number) noexcept {
    return number < static_cast<std::uint32_t>(TupleReason::kCount)
               ? static_cast<TupleReason>(number)
               : TupleReason::kOther;
}

// What the receiver writes to the sender for each receive that it has posted, in eight bytes that
// are stored at once: its number, from 1, and its room. The n-th goes to place (n - 1) %
// kTupleDepth.
struct TupleCredit {
    std::uint32_t number = 0;
    std::uint32_t bytes = 0;
};
static_assert(sizeof(TupleCredit) == 8);

// The immediate of a message: the ignored bits of its tag, which the receiver's completion has to
// show, and the low bits of its number in its tuple, from 0, as a check.
class TupleImmediate {
public:
    static constexpr int kMostBits = 8;
    static bool possible(std::uint64_t mask) noexcept { return std::popcount(mask) <= kMostBits; }

    static std::uint32_t put(std::uint64_t tag, std::uint64_t mask, std::uint32_t number) noexcept {
        HEDDLE_DEBUG_ASSERT(possible(mask), "the bits would change the number");
        std::uint32_t bits = 0;
        int at = 0;
        for (std::uint64_t rest = mask; rest != 0; rest &= rest - 1, ++at)
            bits |= static_cast<std::uint32_t>((tag & rest & -rest) != 0) << at;
        return bits << 24 | (number & kNumber);
    }
    // `tag` without ignored bits.
    static std::uint64_t tag_of(std::uint32_t immediate, std::uint64_t tag,
                                std::uint64_t mask) noexcept {
        HEDDLE_DEBUG_ASSERT((tag & mask) == 0, "the tag comes without ignored bits");
        std::uint32_t bits = immediate >> 24;
        for (std::uint64_t rest = mask; rest != 0; rest &= rest - 1, bits >>= 1)
            if (bits & 1) tag |= rest & -rest;
        return tag;
    }
    static bool is_number(std::uint32_t immediate, std::uint32_t number) noexcept {
        return ((immediate ^ number) & kNumber) == 0;
    }

private:
    static constexpr std::uint32_t kNumber = (1u << 24) - 1;
};

// The peer, and the tag without ignored bits.
struct TupleKey {
    std::uint32_t peer = 0;
    std::uint64_t tag = 0;  // without ignored bits
    bool operator==(const TupleKey&) const = default;
};
struct TupleKeyHash {
    std::size_t operator()(const TupleKey& key) const noexcept {
        return static_cast<std::size_t>(
            (key.tag ^ key.peer * 0x9e37'79b9'7f4a'7c15u) * 0xd6e8'feb8'6659'fd93u >> 8);
    }
};

// How often tags were sent lately, so that those that repeat are seen, whatever number of them
// there is: some sets of few entries, where a new one takes the place of the one used least. A
// tuple whose queue did not last has to repeat more often before it is asked for again.
class TupleFilter {
public:
    static constexpr std::size_t kSets = 256, kWays = 4;

    // Used once more: is it often enough, `wanted` times where nothing has been held against it?
    bool use(const TupleKey& key, std::uint32_t wanted) noexcept {
        Entry& entry = of(key);
        entry.stamp = ++clock_;
        return ++entry.uses >= (std::uint64_t{wanted} << entry.patience);
    }
    // It starts anew. penalty: its queue was refused, or did not last.
    void restart(const TupleKey& key, bool penalty) noexcept {
        Entry& entry = of(key);
        entry.uses = 0;
        if (penalty && entry.patience < kMostPatience) ++entry.patience;
        if (!penalty && entry.patience > 0) --entry.patience;
    }

private:
    static constexpr std::uint8_t kMostPatience = 12;
    struct Entry {
        TupleKey key;
        std::uint32_t uses = 0, stamp = 0;
        std::uint8_t patience = 0;
    };
    Entry& of(const TupleKey& key) noexcept {
        if (entries_.empty()) entries_.resize(kSets * kWays);
        HEDDLE_DEBUG_ASSERT(entries_.size() == kSets * kWays);
        Entry* const set = &entries_[TupleKeyHash{}(key) % kSets * kWays];
        Entry* oldest = set;
        for (Entry* entry = set; entry != set + kWays; ++entry) {
            if (entry->key == key) return *entry;
            if (clock_ - entry->stamp > clock_ - oldest->stamp) oldest = entry;
        }
        *oldest = {};
        oldest->key = key;
        return *oldest;
    }
    std::vector<Entry> entries_;
    std::uint32_t clock_ = 0;
};

// Counted by both sides.
struct TupleCounts {
    std::uint64_t asked = 0, opened = 0, sent = 0, blocking = 0, held = 0, copied = 0, again = 0,
                  received = 0, posted = 0, queues = 0, queues_peak = 0;
    // Declined, or ended, by reason.
    std::array<std::uint64_t, static_cast<std::size_t>(TupleReason::kCount)> declined{}, ended{};
    TupleCounts& operator+=(const TupleCounts& other) noexcept;
};

}  // namespace heddle::protocol
