// SPDX-License-Identifier: BSD-2-Clause
// The direct path's send queue: it writes WQEs into the ring that mlx5dv_init_obj(3) shows, then
// the doorbell record, then the register. "Leveraging mlx5 direct verbs"; ICPADS'18, section II.B.
#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "heddle/detail/assert.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/mlx5_wqe.h"
#include "heddle/post/softhca_hooks.h"
#include "heddle/post/stores.h"
#include "heddle/post/uuar.h"

namespace heddle::post {

namespace detail {

// Whether a WQE goes to the register whole (BlueFlame), as libmlx5's environment variables say.
// libmlx5 reads them when it opens a device. The direct path reads them when a queue is
// constructed, so the queues of one process can differ.
struct RegisterPolicy {
    bool blueflame_for_all =
        true;               // MLX5_POST_SEND_PREFER_BF; false: WQEs with inline payload only
    bool blueflame = true;  // not MLX5_SHUT_UP_BF
};
inline RegisterPolicy register_policy() noexcept {
    const char* prefer = std::getenv("MLX5_POST_SEND_PREFER_BF");
    const char* shut = std::getenv("MLX5_SHUT_UP_BF");
    RegisterPolicy policy;
    policy.blueflame_for_all = prefer == nullptr || std::string_view(prefer) != "0";
    policy.blueflame = shut == nullptr || std::string_view(shut) == "0";
    return policy;
}

}  // namespace detail

/// The send queue of an mlx5 QP (RC, or XRC send), written without libmlx5.
///
///     heddle::post::Mlx5SendQueue<heddle::post::SingleThreaded> queue(qp, false, 60, false);
///     heddle::post::Mlx5CompletionQueue<heddle::post::SingleThreaded> completions(cq);
///     completions.add(queue);
///     if (queue.post_now(request) == heddle::post::Posted::kFull) completions.poll(done, 16);
///
/// As soon as a queue exists, the program must not call ibv_post_send() for its QP: libmlx5 keeps a
/// counter of its own. The QP must outlive the queue.
///
/// Thread safety: with SingleThreaded one thread at a time posts, with SpinLock any thread does.
/// The lock of a uUAR that several QPs share is taken in addition. The polling thread calls
/// completed() and answered() through Mlx5CompletionQueue; it may be another one than the posting
/// thread.
template <class Lock>
class Mlx5SendQueue {
public:
    /// Reads the layout of the QP's ring and registers.
    ///
    /// @param qp in any state; its send queue is empty
    /// @param signal_all each request gets a completion (sq_sig_all of the QP)
    /// @param max_inline bytes of inline payload that a request may have
    /// @param register_shared the driver may put QPs of other threads on this uUAR
    /// @param depth the most outstanding requests, for which the CQ has room; 0: as many as fit
    ///     into the ring
    /// @throw VerbsError the device is not an mlx5. EINVAL: the QP has no send queue
    Mlx5SendQueue(ibv_qp* qp, bool signal_all, std::uint32_t max_inline, bool register_shared,
                  std::uint32_t depth = 0)
        : depth_(depth),
          qpn_(qp->qp_num),
          xrc_(qp->qp_type == IBV_QPT_XRC_SEND),
          mode_(signal_all ? MLX5_WQE_CTRL_CQ_UPDATE : 0),
          max_inline_(max_inline) {
        const mlx5dv_qp out = detail::layout_of(qp);
        if (out.sq.wqe_cnt == 0)
            throw VerbsError("sends of QP " + std::to_string(qpn_), EINVAL,
                             "it was created without a send queue");
        HEDDLE_ASSERT(std::has_single_bit(out.sq.wqe_cnt), "a send ring of 2^n blocks");
        HEDDLE_ASSERT(out.sq.stride == detail::kBlock);
        ring_.begin = static_cast<std::byte*>(out.sq.buf);
        ring_.blocks = out.sq.wqe_cnt;
        ring_.mask = ring_.blocks - 1;
        ring_.end = ring_.begin + std::size_t{ring_.blocks} * detail::kBlock;
        record_ = out.dbrec + MLX5_SND_DBR;
        uuar_ = detail::uuar_at(out.bf.reg, out.bf.size, register_shared);
        const detail::RegisterPolicy policy = detail::register_policy();
        if (policy.blueflame) blueflame_inline_ = uuar_->half_bytes / detail::kUnit;
        if (policy.blueflame_for_all) blueflame_gathered_ = blueflame_inline_;
        if (depth_ == 0 || depth_ > ring_.blocks) depth_ = ring_.blocks;
        HEDDLE_ASSERT(depth_ <= 1u << 15, "counters have 16 bits");
        ends_mask_ = std::bit_ceil(depth_) - 1;
        ends_ = std::make_unique<std::uint16_t[]>(ends_mask_ + 1);
        ids_ = std::make_unique<std::uint64_t[]>(ends_mask_ + 1);
        qpn_and_units_of_small_ = std::uint64_t{htobe32(qpn_ << 8 | (xrc_ ? 4 : 3))} << 32;
        flags_of_small_[0] = htobe32(mode_);
        flags_of_small_[1] = htobe32(std::uint32_t{mode_} | MLX5_WQE_CTRL_CQ_UPDATE);
        small_goes_whole_ = xrc_ && !uuar_->shared && blueflame_inline_ >= detail::kUnitsInBlock;
    }

    /// Makes completions count: the id of the n-th request is `base` + n (n from 0, 32 bits),
    /// whatever WorkRequest::id is. The queue then stores no ids. Called before the first post.
    void count_ids_from(std::uint64_t base) {
        HEDDLE_ASSERT(number_ == 0, "count_ids_from() comes before the first post");
        id_base_ = base;
        ids_.reset();
    }

    /// Returns the QP's number. Any thread.
    std::uint32_t qpn() const noexcept { return qpn_; }

    /// Writes a WQE into the ring. The device learns of it from the next ring_doorbell().
    /// @return kOk; kFull: poll, then try again; kInvalid: too many SGEs or inline bytes, or an
    ///     inline read or atomic
    Posted post(const WorkRequest& request) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const Posted posted = append(request, last_);
        if (posted == Posted::kOk) {
            has_inline_ = has_inline_ || (request.flags & kInline);
            ++pending_;
        }
        return posted;
    }
    /// Tells the device of all requests since the last doorbell.
    /// @return kOk always: post() has already found room
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (pending_ != 0) ring_pending();
        return Posted::kOk;
    }
    /// Posts a request and rings the doorbell. The function is inlined: what the caller's compiler
    /// knows of the request - opcode, flags, number of SGEs - is not checked at run time.
    /// @return as post()
    [[gnu::always_inline]] Posted post_now(const WorkRequest& request) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        Last last;
        const Posted posted = append(request, last);
        if (posted != Posted::kOk) return posted;
        if (pending_ == 0) [[likely]] {
            ring_register(last, blueflame_units(request.flags & kInline));
        } else {
            last_ = last;
            has_inline_ = has_inline_ || (request.flags & kInline);
            ++pending_;
            ring_pending();
        }
        return posted;
    }

    /// Posts an inline SEND of 16 to 24 bytes, which most messages of MPI programs are. The WQE is
    /// one block, and this function has all of its words in registers.
    ///
    /// @tparam kImmediate the message has immediate data
    /// @param first,second the first 16 bytes, as they are in memory
    /// @param tail up to 8 further bytes, as they are in memory
    /// @param tail_bytes how many of them are sent, 0 to 8
    /// @param immediate immediate data in host order
    /// @param srq XRC: the number of the peer's SRQ, four bytes in network order
    /// @param signaled the request gets a completion
    /// @param noted called when the ring has room, before the device learns of the request
    /// @return kOk; kFull: poll, then try again; kInvalid: the queue has WQEs without a doorbell,
    ///     takes less than 24 bytes inline, or does not count ids (count_ids_from())
    template <bool kImmediate, class Noted>
    [[gnu::always_inline]] Posted post_small(std::uint64_t first, std::uint64_t second,
                                             std::uint64_t tail, std::uint32_t tail_bytes,
                                             std::uint32_t immediate, std::uint64_t srq,
                                             bool signaled, const Noted& noted) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        HEDDLE_DEBUG_ASSERT(tail_bytes <= sizeof tail);
        if (number_ == small_until_) [[unlikely]] {
            if (const Posted refused = find_room_for_small(); refused != Posted::kOk)
                return refused;
        }
        HEDDLE_DEBUG_ASSERT(pending_ == 0 && ids_ == nullptr,
                            "find_room_for_small() looked at both");
        // The inline segment begins with a length of four bytes, which shifts all other words.
        const std::uint32_t length = htobe32((detail::kUnit + tail_bytes) | MLX5_INLINE_SEG);
        const SmallEntry entry{
            .control = {qpn_and_units_of_small_ |
                            htobe32(std::uint32_t{counter_} << 8 |
                                    (kImmediate ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND)),
                        flags_of_small_[signaled ? 1 : 0] |
                            (kImmediate ? std::uint64_t{htobe32(immediate)} << 32 : 0)},
            .srq = srq,
            .payload = {length | first << 32, first >> 32 | second << 32, second >> 32 | tail << 32,
                        tail >> 32}};
        std::byte* const begin = ring_.block(counter_);
        const auto end = static_cast<std::uint16_t>(counter_ + 1);
        const std::uint32_t number = number_ + 1;
        counter_ = end;
        number_ = number;
        ends_[number & ends_mask_] = end;
        noted();
        if (small_goes_whole_) [[likely]] {
            ring_small(entry, begin, end);
        } else {
            if (xrc_)
                store<true>(entry, begin);
            else
                store<false>(entry, begin);
            ring_one(begin, xrc_ ? 4 : 3);
        }
        return Posted::kOk;
    }

    /// For Mlx5CompletionQueue: the WQE at `counter` and all before it have completed.
    /// @param counter the WQE's first block, as the CQE has it
    /// @return the id of that request
    std::uint64_t completed(std::uint16_t counter) noexcept {
        detail::acquire_from_device(ends_.get());
        const std::uint64_t done = done_.load(std::memory_order_relaxed);
        const auto from = static_cast<std::uint16_t>(done);
        const auto distance = static_cast<std::uint16_t>(counter - from);
        auto number = static_cast<std::uint32_t>(done >> 16);
        // The loop passes each request once. It ends after depth_ requests even if the device
        // reports a counter that no WQE has.
        for (std::uint32_t most = depth_; most != 0; --most) {
            ++number;
            const auto end = static_cast<std::uint16_t>(ends_[number & ends_mask_] - from);
            if (end > distance) break;
        }
        const std::size_t at = number & ends_mask_;
        const std::uint64_t id = ids_ == nullptr ? id_base_ + (number - 1) : ids_[at];
        done_.store(std::uint64_t{number} << 16 | ends_[at], std::memory_order_release);
        return id;
    }

    /// For Mlx5CompletionQueue: stores the result of a READ or atomic that arrived in the CQE.
    /// @param counter the WQE's first block
    /// @param payload the result, in the CQE
    /// @param bytes its length
    void answered(std::uint16_t counter, const std::byte* payload, std::size_t bytes) noexcept {
        const detail::WqeReader entry(ring_, counter);
        std::uint32_t at = entry.header_units(xrc_);
        for (; at < entry.units() && bytes != 0; ++at) {
            const auto segment = entry.at<mlx5_wqe_data_seg>(at);
            const std::size_t piece = std::min<std::size_t>(be32toh(segment.byte_count), bytes);
            std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(be64toh(segment.addr))),
                        payload, piece);
            payload += piece;
            bytes -= piece;
        }
    }

private:
    // The last WQE, for the register.
    struct Last {
        const std::byte* entry;
        std::uint32_t units;
    };

    [[gnu::always_inline]] Posted append(const WorkRequest& request, Last& last) noexcept {
        const detail::WqeShape shape = detail::wqe_shape(request, xrc_);
        // The field ds has six bits.
        if (shape.units > 63 || shape.inline_bytes > max_inline_ ||
            (request.flags & kInline && !detail::may_be_inline(request.opcode)))
            return Posted::kInvalid;
        const std::uint32_t blocks =
            (shape.units + detail::kUnitsInBlock - 1) / detail::kUnitsInBlock;
        const std::uint64_t done = done_.load(std::memory_order_acquire);
        const auto used = static_cast<std::uint16_t>(counter_ - done);
        const std::uint32_t outstanding = number_ - static_cast<std::uint32_t>(done >> 16);
        HEDDLE_DEBUG_ASSERT(used <= ring_.blocks && outstanding <= depth_);
        if (used + blocks > ring_.blocks || outstanding >= depth_) return Posted::kFull;
        last = {detail::build_wqe(ring_, counter_, qpn_, xrc_, mode_, request, shape), shape.units};
        ++number_;
        counter_ = static_cast<std::uint16_t>(counter_ + blocks);
        const std::size_t at = number_ & ends_mask_;
        ends_[at] = counter_;
        if (ids_ != nullptr) ids_[at] = request.id;
        small_until_ = number_;  // this request may have taken more than a block
        return Posted::kOk;
    }

    // The words of a WQE of post_small().
    struct SmallEntry {
        std::uint64_t control[2];
        std::uint64_t srq;
        std::uint64_t payload[4];
    };
    // Stores a whole block by eight bytes in ascending order, as registers require.
    template <bool kXrc>
    [[gnu::always_inline]] static void store(const SmallEntry& entry, std::byte* to) noexcept {
        detail::store_register(to, entry.control[0]);
        detail::store_register(to + 8, entry.control[1]);
        if (kXrc) {
            detail::store_register(to + 16, entry.srq);
            detail::store_register(to + 24, 0);
        }
        std::byte* const at = to + (kXrc ? 2 : 1) * detail::kUnit;
        detail::store_register(at, entry.payload[0]);
        detail::store_register(at + 8, entry.payload[1]);
        detail::store_register(at + 16, entry.payload[2]);
        detail::store_register(at + 24, entry.payload[3]);
        if (!kXrc) {
            detail::store_register(to + 48, 0);
            detail::store_register(to + 56, 0);
        }
    }
    // Rings the doorbell of a small WQE with an XRC segment, on a register that no other QP uses.
    [[gnu::always_inline]] void ring_small(const SmallEntry& entry, std::byte* begin,
                                           std::uint16_t end) noexcept {
        store<true>(entry, begin);
        detail::release_to_device(ends_.get());
        detail::order_memory_stores();
        detail::store_record(record_, htobe32(end));
        detail::Uuar& uuar = *uuar_;
        std::byte* const at = uuar.address + uuar.offset;
        detail::begin_register_stores();
        store<true>(entry, at);
        detail::end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (hook_ != nullptr) hook_(at);
    }
    [[gnu::noinline]] void ring_one(const std::byte* entry, std::uint32_t units) noexcept {
        ring_register({entry, units}, blueflame_inline_);
    }
    // Reads done_ only when the room that was known before has been used.
    [[gnu::noinline]] Posted find_room_for_small() noexcept {
        if (pending_ != 0 || ids_ != nullptr || max_inline_ < detail::kUnit + sizeof(std::uint64_t))
            return Posted::kInvalid;
        const std::uint64_t done = done_.load(std::memory_order_acquire);
        const auto used = static_cast<std::uint16_t>(counter_ - done);
        const std::uint32_t outstanding = number_ - static_cast<std::uint32_t>(done >> 16);
        HEDDLE_DEBUG_ASSERT(used <= ring_.blocks && outstanding <= depth_);
        small_until_ = number_ + std::min(ring_.blocks - used, depth_ - outstanding);
        return small_until_ != number_ ? Posted::kOk : Posted::kFull;
    }

    // A single WQE of at most blueflame_units goes to the register whole. The device need not fetch
    // it.
    [[gnu::always_inline]] void ring_register(const Last& last,
                                              std::uint32_t blueflame_units) noexcept {
        detail::release_to_device(ends_.get());
        detail::order_memory_stores();
        detail::store_record(record_, htobe32(counter_));
        detail::Uuar& uuar = *uuar_;
        HEDDLE_DEBUG_ASSERT(uuar.half_bytes == 0 || uuar.offset <= uuar.half_bytes);
        if (uuar.shared) {
            uuar.lock.lock();
            ++uuar.locks_taken;
        }
        std::byte* const at = uuar.address + uuar.offset;
        detail::begin_register_stores();
        if (last.units <= blueflame_units && last.units > 1) {
            const std::byte* from = last.entry;
            std::uint32_t offset = 0;
            do {
                detail::store_register64(at + offset, from);
                from += detail::kBlock;
                if (from == ring_.end) from = ring_.begin;
                offset += detail::kBlock;
            } while (offset < last.units * detail::kUnit);
        } else {
            std::uint64_t first;
            std::memcpy(&first, last.entry, sizeof first);
            detail::store_register(at, first);
        }
        detail::end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (uuar.shared) uuar.lock.unlock();
        if (hook_ != nullptr) hook_(at);
    }

    // Rings the doorbell for what post() has put into the ring.
    [[gnu::noinline]] void ring_pending() noexcept {
        HEDDLE_DEBUG_ASSERT(pending_ != 0 && pending_ <= depth_);
        ring_register(last_, pending_ == 1 ? blueflame_units(has_inline_) : 0);
        pending_ = 0;
        has_inline_ = false;
    }

    std::uint32_t blueflame_units(bool is_inline) const noexcept {
        return is_inline ? blueflame_inline_ : blueflame_gathered_;
    }

    Lock lock_;
    detail::Ring ring_;
    std::uint32_t depth_;
    __be32* record_ = nullptr;
    std::shared_ptr<detail::Uuar> uuar_;
    std::uint32_t qpn_;
    bool xrc_;
    std::uint8_t mode_;
    std::uint32_t max_inline_;
    std::uint32_t blueflame_inline_ = 0, blueflame_gathered_ = 0;  // most units; 0: never
    detail::Doorbell hook_ = detail::doorbell_hook();
    std::uint64_t qpn_and_units_of_small_ = 0;  // part of the control segment of post_small()
    std::uint64_t flags_of_small_[2] = {};      // not signaled, signaled
    bool small_goes_whole_ = false;             // post_small() uses ring_small()
    // The lock guards everything up to small_until_.
    std::uint32_t number_ = 0;   // requests posted, free-running
    std::uint16_t counter_ = 0;  // blocks put into the ring, free-running
    std::uint32_t pending_ = 0;  // requests since the last doorbell
    bool has_inline_ = false;
    Last last_{};
    std::uint32_t small_until_ = 0;  // requests of one block fit up to this number
    // By a request's number: the block behind its WQE, and its id. The posting thread writes them
    // before it rings; the polling thread reads them after the completion.
    std::unique_ptr<std::uint16_t[]> ends_;
    std::unique_ptr<std::uint64_t[]> ids_;  // nullptr: completions count
    std::uint32_t ends_mask_ = 0;
    std::uint64_t id_base_ = 0;
    alignas(64) std::atomic<std::uint64_t> done_{
        0};  // written by the polling thread: number << 16 | end
};

}  // namespace heddle::post
