// SPDX-License-Identifier: BSD-2-Clause
// The direct path's send queue: it writes WQEs into the ring that mlx5dv_init_obj(3) shows, then
// the doorbell record, then the register. "Leveraging mlx5 direct verbs"; ICPADS'18, section II.B.
#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/post/mlx5_doorbell.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/mlx5_wqe.h"
#include "heddle/post/stores.h"

namespace heddle::post {

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
        doorbell_.emplace(out, register_shared);
        if (depth_ == 0 || depth_ > ring_.blocks) depth_ = ring_.blocks;
        HEDDLE_ASSERT(depth_ <= 1u << 15, "counters have 16 bits");
        ends_mask_ = std::bit_ceil(depth_) - 1;
        ends_ = std::make_unique<std::uint16_t[]>(ends_mask_ + 1);
        ids_ = std::make_unique<std::uint64_t[]>(ends_mask_ + 1);
        qpn_and_units_of_small_ = std::uint64_t{htobe32(qpn_ << 8 | (xrc_ ? 4 : 3))} << 32;
        flags_of_small_[0] = htobe32(mode_);
        flags_of_small_[1] = htobe32(std::uint32_t{mode_} | MLX5_WQE_CTRL_CQ_UPDATE);
        small_goes_whole_ = xrc_ && doorbell_->takes_small();
    }

    /// Makes completions count: the id of the n-th request is `base` + n (32 bits, from `first`),
    /// whatever WorkRequest::id is. The queue then stores no ids. Called before the first post.
    void count_ids_from(std::uint64_t base, std::uint32_t first = 0) {
        HEDDLE_ASSERT(counter_ == 0, "count_ids_from() comes before the first post");
        id_base_ = base;
        ids_.reset();
        number_ = small_until_ = first;
        done_.store(std::uint64_t{first} << 16, std::memory_order_relaxed);
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
            ring(last, request.flags & kInline);
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
        const detail::SmallEntry entry{
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
            detail::store<true>(entry, begin);
            doorbell_->ring_small(entry, end, ends_.get());
        } else {
            if (xrc_)
                detail::store<true>(entry, begin);
            else
                detail::store<false>(entry, begin);
            ring_one(begin, xrc_ ? 4 : 3);
        }
        return Posted::kOk;
    }

    /// Posts an inline SEND of 16 bytes and some more, where post_now() would ask for each part of
    /// the request.
    ///
    /// @tparam kImmediate as for post_small()
    /// @param first,second,immediate,srq,signaled,noted as for post_small()
    /// @param rest,rest_bytes what follows the first 16 bytes
    /// @return kOk; kFull: poll, then try again; kInvalid: as post_small(), too many bytes, the
    ///     WQE would wrap in the ring, or nearly no room: the caller uses post_now()
    template <bool kImmediate, class Noted>
    [[gnu::always_inline]] Posted post_message(std::uint64_t first, std::uint64_t second,
                                               const std::byte* rest, std::uint32_t rest_bytes,
                                               std::uint32_t immediate, std::uint64_t srq,
                                               bool signaled, const Noted& noted) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const std::uint32_t bytes = detail::kUnit + rest_bytes;
        if (bytes > max_inline_) return Posted::kInvalid;
        const std::uint32_t units =
            (xrc_ ? 2 : 1) +
            (bytes + std::uint32_t{sizeof(mlx5_wqe_inl_data_seg)} + detail::kUnit - 1) /
                detail::kUnit;
        const std::uint32_t blocks = (units + detail::kUnitsInBlock - 1) / detail::kUnitsInBlock;
        const std::uint32_t number = number_ + 1;
        if (small_until_ - number_ < blocks) [[unlikely]] {
            if (const Posted refused = find_room_for_small(); refused != Posted::kOk)
                return refused;
            // In requests of one block there may be no room, where there is for this one.
            if (small_until_ - number_ < blocks) return Posted::kInvalid;
        }
        std::byte* const begin = ring_.block(counter_);
        if (begin + std::size_t{blocks} * detail::kBlock > ring_.end) [[unlikely]]
            return Posted::kInvalid;
        std::byte* at = begin;
        detail::put_segment(
            at, control_word(kImmediate ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND, units),
            flags_of_small_[signaled ? 1 : 0] |
                (kImmediate ? std::uint64_t{htobe32(immediate)} << 32 : 0));
        if (xrc_) [[likely]]
            detail::put_segment(at, srq, 0);
        detail::put_inline(at, bytes, first, second, rest, rest_bytes);
        const auto end = static_cast<std::uint16_t>(counter_ + blocks);
        number_ = number;
        counter_ = end;
        small_until_ -= blocks - 1;
        ends_[number & ends_mask_] = end;
        noted();
        ring({begin, units}, true);
        return Posted::kOk;
    }

    /// Is it a request for post_transfer()? An RDMA WRITE or READ of one SGE, without immediate
    /// data, fence or event, and of no more inline bytes than fit into one block.
    static bool is_transfer(const WorkRequest& request) noexcept {
        constexpr std::uint32_t kMostInline = detail::kUnit - sizeof(mlx5_wqe_inl_data_seg);
        return (request.opcode == Opcode::kWrite
                    ? (request.flags & ~kInline) == 0
                    : request.opcode == Opcode::kRead && request.flags == 0) &&
               request.sges.size() == 1 && request.sges.front().length != 0 &&
               (request.flags == 0 || request.sges.front().length <= kMostInline);
    }

    /// Posts a request for which is_transfer() is true: a WQE of one block. WorkRequest::id has no
    /// meaning.
    /// @param signaled,noted as for post_small()
    /// @return as post_small(): kInvalid: the caller uses post_now()
    template <class Noted>
    [[gnu::always_inline]] Posted post_transfer(const WorkRequest& request, bool signaled,
                                                const Noted& noted) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        HEDDLE_DEBUG_ASSERT(is_transfer(request));
        if (number_ == small_until_) [[unlikely]] {
            if (const Posted refused = find_room_for_small(); refused != Posted::kOk)
                return refused;
        }
        const std::uint32_t units = xrc_ ? 4 : 3;
        const bool is_read = request.opcode == Opcode::kRead, is_inline = request.flags != 0;
        std::byte* const begin = ring_.block(counter_);
        std::byte* at = begin;
        detail::put_segment(
            at, control_word(is_read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE, units),
            flags_of_small_[signaled ? 1 : 0]);
        if (xrc_) detail::put_segment(at, htobe32(request.remote_srq), 0);
        detail::put_segment(at, htobe64(request.remote_address), htobe32(request.remote_key));
        const ibv_sge& sge = request.sges.front();
        if (is_inline)
            detail::put_few_inline(at, reinterpret_cast<const std::byte*>(sge.addr), sge.length);
        else
            detail::put_segment(at, std::uint64_t{htobe32(sge.lkey)} << 32 | htobe32(sge.length),
                                htobe64(sge.addr));
        ++number_;
        ++counter_;
        ends_[number_ & ends_mask_] = counter_;
        noted();
        ring({begin, units}, is_inline);
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

    // The first eight bytes of the control segment of the next WQE.
    std::uint64_t control_word(std::uint32_t opcode, std::uint32_t units) const noexcept {
        return std::uint64_t{htobe32(qpn_ << 8 | units)} << 32 |
               htobe32(std::uint32_t{counter_} << 8 | opcode);
    }

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

    // Rings the doorbell for one WQE, which is the only one since the last doorbell.
    [[gnu::always_inline]] void ring(const Last& last, bool is_inline) noexcept {
        doorbell_->ring(ring_, last.entry, last.units, doorbell_->most_units(is_inline), counter_,
                        ends_.get());
    }
    [[gnu::noinline]] void ring_one(const std::byte* entry, std::uint32_t units) noexcept {
        ring({entry, units}, true);
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

    // Rings the doorbell for what post() has put into the ring.
    [[gnu::noinline]] void ring_pending() noexcept {
        HEDDLE_DEBUG_ASSERT(pending_ != 0 && pending_ <= depth_);
        doorbell_->ring(ring_, last_.entry, last_.units,
                        pending_ == 1 ? doorbell_->most_units(has_inline_) : 0, counter_,
                        ends_.get());
        pending_ = 0;
        has_inline_ = false;
    }

    Lock lock_;
    detail::Ring ring_;
    std::uint32_t depth_;
    std::optional<detail::SendDoorbell> doorbell_;  // always there
    std::uint32_t qpn_;
    bool xrc_;
    std::uint8_t mode_;
    std::uint32_t max_inline_;
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
