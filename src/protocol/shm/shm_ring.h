// SPDX-License-Identifier: BSD-2-Clause
// A ring in shared memory (wire/shm_layout.h) from one endpoint to another on the same host:
// messages of one sender, written by its processor, for one receiver, which polls the ring.
//
// A message of up to ShmSlot::kInside bytes lies in its slot, so that a small one takes one cache
// line from the one processor to the other. A longer one lies in the area, and its slot says how
// long it is.
// Where it lies both sides compute by themselves: behind the one before, or at the area's begin
// where it would not fit before the end. So the only number that the receiver has to believe is a
// length, which it checks.
//
// Order, by release and acquire:
// - The sender stores a message, then the slot's mark. The receiver loads the mark, then reads the
//   message. The mark has the number of times that the ring went round, so nothing is cleared.
// - The receiver reads a message, then stores how many it has taken. The sender loads that number
//   before it writes to the same place again.
// - Before the receiver sleeps it stores `armed`, makes a barrier, and looks at the marks. The
//   sender stores a mark, makes a barrier, and loads `armed`. So at least one of them sees the
//   other's store (Dekker). Usually the sender's is a barrier of the compiler alone: the receiver's
//   is membarrier(2), which makes one in every process that has asked for it (barrier.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/wire/shm_layout.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// The side that writes messages. Threads: one at a time.
class ShmSender {
public:
    // The memory is of that shape, zero behind its ShmControl, and stays. fences: the receiver
    // cannot make barriers in this process.
    ShmSender(std::byte* memory, const ShmShape& shape, bool fences)
        : control_(control_of(memory)),
          slots_(slots_of(memory)),
          area_(area_of(memory, shape)),
          shape_(shape),
          fences_(fences),
          ends_(new std::uint32_t[shape.slots]{}) {
        HEDDLE_ASSERT(shape.is_possible(), "the caller has looked at the shape");
    }
    ShmSender(const ShmSender&) = delete;
    ShmSender& operator=(const ShmSender&) = delete;

    bool takes(std::size_t bytes) const noexcept { return bytes <= shape_.most_message(); }
    // Where the next message is put, of so many bytes. nullptr: there is no room yet.
    std::byte* reserve(std::size_t bytes) noexcept {
        HEDDLE_DEBUG_ASSERT(bytes >= sizeof(Header) && takes(bytes), "not a message for a ring");
        if (sent_ - taken_ == shape_.slots && !look_what_was_taken()) [[unlikely]]
            return nullptr;
        if (bytes <= ShmSlot::kInside) {
            end_ = area_at_;
            return slots_[sent_ & (shape_.slots - 1)].inside;
        }
        return reserve_in_area(in_lines(bytes));
    }
    // The message, of as many bytes as were reserved, can be read. True: its receiver sleeps, and
    // the caller has to wake it.
    bool publish(std::size_t bytes, bool has_immediate, std::uint32_t immediate) noexcept {
        const std::uint32_t at = sent_ & (shape_.slots - 1);
        ShmSlot& slot = slots_[at];
        slot.immediate = immediate;
        ends_[at] = area_at_ = end_;
        const std::uint64_t round = sent_ / shape_.slots + 1;
        slot.mark.store(round << 32 | (has_immediate ? ShmSlot::kHasImmediate : 0) |
                            static_cast<std::uint32_t>(bytes),
                        std::memory_order_release);
        ++sent_;
        if (fences_) [[unlikely]]
            std::atomic_thread_fence(std::memory_order_seq_cst);
        else
            std::atomic_signal_fence(std::memory_order_seq_cst);
        if (control_.state.armed.load(std::memory_order_relaxed) == 0) [[likely]]
            return false;
        return control_.state.armed.exchange(0, std::memory_order_acq_rel) != 0;
    }

    // The receiver can read memory of this process.
    bool is_memory_read() const noexcept {
        return control_.state.reads.load(std::memory_order_relaxed) != 0;
    }
    // What this process has announced may not be read any more. Before its memory is used again.
    void close() noexcept { control_.constants.is_closed.store(1, std::memory_order_seq_cst); }
    // Messages are in it that the receiver has not taken.
    bool has_untaken() const noexcept {
        return control_.progress.taken.load(std::memory_order_relaxed) != sent_;
    }
    // The receiver says what cannot be: that it has taken more than there was.
    bool is_broken() const noexcept { return is_broken_; }

private:
    std::byte* reserve_in_area(std::uint32_t bytes) noexcept {
        const std::uint32_t begin = shape_.begin_of(area_at_, bytes);
        end_ = begin + bytes;
        if (end_ - area_taken_ > shape_.area_bytes &&
            (!look_what_was_taken() || end_ - area_taken_ > shape_.area_bytes)) [[unlikely]]
            return nullptr;
        return area_ + (begin & (shape_.area_bytes - 1));
    }
    // False: nothing since the last time.
    [[gnu::noinline]] bool look_what_was_taken() noexcept {
        const std::uint32_t taken = control_.progress.taken.load(std::memory_order_acquire);
        if (taken == taken_) return false;
        if (taken - taken_ > sent_ - taken_) {
            is_broken_ = true;
            return false;
        }
        taken_ = taken;
        area_taken_ = ends_[(taken - 1) & (shape_.slots - 1)];
        return true;
    }

    ShmControl& control_;
    ShmSlot* const slots_;
    std::byte* const area_;
    const ShmShape shape_;
    const bool fences_;
    bool is_broken_ = false;
    std::uint32_t sent_ = 0, taken_ = 0;                    // messages, free-running
    std::uint32_t area_at_ = 0, area_taken_ = 0, end_ = 0;  // bytes of the area, free-running
    const std::unique_ptr<std::uint32_t[]> ends_;  // by slot: where the area's next message began
};

// The side that reads them. Threads: one at a time.
class ShmReceiver {
public:
    enum class Next : std::uint8_t { kNothing, kMessage, kBroken };
    struct Found {
        std::span<const std::byte> bytes;
        std::uint32_t immediate = 0;
        bool has_immediate = false;
    };

    // As that of ShmSender.
    ShmReceiver(std::byte* memory, const ShmShape& shape)
        : control_(control_of(memory)),
          slots_(slots_of(memory)),
          area_(area_of(memory, shape)),
          shape_(shape),
          publish_every_(shape.slots / 8) {
        HEDDLE_ASSERT(shape.is_possible(), "it was made of that shape");
    }
    ShmReceiver(const ShmReceiver&) = delete;
    ShmReceiver& operator=(const ShmReceiver&) = delete;

    bool is_empty() const noexcept {
        const std::uint64_t mark =
            slots_[taken_ & (shape_.slots - 1)].mark.load(std::memory_order_acquire);
        return static_cast<std::uint32_t>(mark >> 32) != taken_ / shape_.slots + 1;
    }
    // The oldest message. Its bytes stay until pop(), unless the sender breaks the rules: whatever
    // is looked at twice is copied first.
    Next next(Found& found) noexcept;
    // It has been dealt with.
    void pop() noexcept {
        ++taken_;
        const std::uint32_t used = std::exchange(area_at_, end_);
        // A sender of long messages waits for each of them; one of short ones for a share of the
        // ring, as the line in which the number lies goes to it then.
        if (area_at_ - used >= kPublishAtOnce || taken_ % publish_every_ == 0) publish();
    }
    // Nothing was found: lets the sender see what was taken before.
    void settle() noexcept {
        if (published_ != taken_) publish();
    }

    // Before the receiver sleeps. Then it makes a barrier, and looks at is_empty().
    void arm() noexcept { control_.state.armed.store(1, std::memory_order_relaxed); }

private:
    static constexpr std::uint32_t kPublishAtOnce = 1024;  // bytes of the area
    void publish() noexcept {
        published_ = taken_;
        control_.progress.taken.store(taken_, std::memory_order_release);
    }

    ShmControl& control_;
    ShmSlot* const slots_;
    std::byte* const area_;
    const ShmShape shape_;
    const std::uint32_t publish_every_;
    std::uint32_t taken_ = 0, published_ = 0;  // messages, free-running
    std::uint32_t area_at_ = 0, end_ = 0;      // bytes of the area, free-running
};

inline ShmReceiver::Next ShmReceiver::next(Found& found) noexcept {
    const ShmSlot& slot = slots_[taken_ & (shape_.slots - 1)];
    const std::uint64_t mark = slot.mark.load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(mark >> 32) != taken_ / shape_.slots + 1) [[likely]]
        return Next::kNothing;
    const auto word = static_cast<std::uint32_t>(mark);
    const std::size_t bytes = word & ~ShmSlot::kHasImmediate;
    if (bytes < sizeof(Header) || bytes > shape_.most_message()) [[unlikely]]
        return Next::kBroken;
    found.has_immediate = (word & ShmSlot::kHasImmediate) != 0;
    found.immediate = slot.immediate;
    end_ = area_at_;
    if (bytes <= ShmSlot::kInside) {
        found.bytes = {slot.inside, bytes};
        return Next::kMessage;
    }
    const std::uint32_t lines = in_lines(bytes);
    const std::uint32_t begin = shape_.begin_of(area_at_, lines);
    end_ = begin + lines;
    found.bytes = {area_ + (begin & (shape_.area_bytes - 1)), bytes};
    return Next::kMessage;
}

}  // namespace heddle::protocol
