// SPDX-License-Identifier: BSD-2-Clause
// The direct path's receives: on a QP's own ring, and on a shared receive queue, whose WQEs form a
// list (PRM "Receive WQE", "SRQ WQE next segment").
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/stores.h"
#include "heddle/post/work_request.h"

namespace heddle::post::detail {

// Writes a scatter list into a WQE of `room` segments. A list that is shorter gets an end mark.
inline void put_scatter_list(std::byte* at, std::size_t room,
                             std::span<const ibv_sge> sges) noexcept {
    constexpr std::uint32_t kNoKey = 0x100;  // PRM: it ends the list
    const auto put = [&](std::uint32_t bytes, std::uint32_t key, std::uint64_t address) {
        mlx5_wqe_data_seg segment{htobe32(bytes), htobe32(key), htobe64(address)};
        std::memcpy(at, &segment, sizeof segment);
        at += sizeof segment;
    };
    HEDDLE_DEBUG_ASSERT(sges.size() <= room, "the caller checked the number of SGEs");
    std::size_t used = 0;
    for (const ibv_sge& sge : sges) {
        if (sge.length == 0) continue;  // PRM: zero means 2 GiB
        put(sge.length, sge.lkey, sge.addr);
        ++used;
    }
    if (used < room) put(0, kNoKey, 0);
}

// Copies payload that arrived in the CQE to the memory of the scatter list at `at`.
inline void scatter(const std::byte* at, std::size_t room, const std::byte* payload,
                    std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < room && bytes != 0; ++i, at += sizeof(mlx5_wqe_data_seg)) {
        mlx5_wqe_data_seg segment;
        std::memcpy(&segment, at, sizeof segment);
        const std::size_t piece = std::min<std::size_t>(be32toh(segment.byte_count), bytes);
        std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(be64toh(segment.addr))),
                    payload, piece);
        payload += piece;
        bytes -= piece;
    }
}

// A completed receive: its id, and the scatter list of its WQE.
struct Received {
    std::uint64_t id = 0;
    const std::byte* list = nullptr;
    std::size_t room = 0;
};

// Posting to a receive queue of either kind, the public part of both. Queue has append(sges, id),
// which writes a WQE into the ring, and announce(), which counts it in the doorbell record. Both
// are called under lock_.
template <class Queue, class Lock>
class Mlx5Receives {
public:
    /// Writes a receive into the ring. The device learns of it from the next ring_doorbell().
    /// @param sges registered memory, which must stay until the receive completes
    /// @param id any value; the completion has it
    /// @return kOk; kFull: poll, then try again; kInvalid: more SGEs than the queue was created for
    Posted post(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return queue().append(sges, id);
    }
    /// Tells the device of all receives since the last doorbell.
    /// @return kOk always: post() has already found room
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        queue().announce();
        return Posted::kOk;
    }
    /// Posts a receive and rings the doorbell. Arguments and result are those of post().
    Posted post_now(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const Posted posted = queue().append(sges, id);
        if (posted == Posted::kOk) queue().announce();
        return posted;
    }

protected:
    Lock lock_;

private:
    Queue& queue() noexcept { return static_cast<Queue&>(*this); }
};

}  // namespace heddle::post::detail

namespace heddle::post {

/// The receive queue of an mlx5 QP, written without libmlx5.
///
///     heddle::post::Mlx5ReceiveQueue<heddle::post::SingleThreaded> receives(qp);
///     completions.add(receives);
///     receives.post_now({&sge, 1}, 7);
///
/// As soon as it exists, the program must not call ibv_post_recv() for its QP: libmlx5 keeps a
/// counter of its own. The QP must outlive it.
///
/// Thread safety: with SingleThreaded one thread at a time posts, with SpinLock any thread does.
/// The polling thread, which calls completed() and release() through Mlx5CompletionQueue, may be
/// another.
template <class Lock>
class Mlx5ReceiveQueue : public detail::Mlx5Receives<Mlx5ReceiveQueue<Lock>, Lock> {
public:
    /// Reads the layout of the QP's ring.
    /// @param qp in any state; its receive queue is empty
    /// @throw VerbsError the device is not an mlx5. EINVAL: the QP has no receive queue
    explicit Mlx5ReceiveQueue(ibv_qp* qp) : qpn_(qp->qp_num) {
        const mlx5dv_qp out = detail::layout_of(qp);
        if (out.rq.wqe_cnt == 0)
            throw VerbsError("receives of QP " + std::to_string(qpn_), EINVAL,
                             "it was created without a receive queue (receive_depth, or an SRQ)");
        HEDDLE_ASSERT(std::has_single_bit(out.rq.wqe_cnt), "a receive ring of 2^n WQEs");
        HEDDLE_ASSERT(out.rq.stride >= sizeof(mlx5_wqe_data_seg));
        begin_ = static_cast<std::byte*>(out.rq.buf);
        count_ = out.rq.wqe_cnt;
        stride_ = out.rq.stride;
        record_ = out.dbrec + MLX5_RCV_DBR;
        ids_.resize(count_);
    }

    /// Returns the QP's number. Any thread.
    std::uint32_t qpn() const noexcept { return qpn_; }

    /// For Mlx5CompletionQueue: finds a completed receive. The order of completions need not be
    /// that of the WQEs (rdma-core 7e8db6fbd).
    /// @param counter the WQE that the message took, as the CQE has it
    detail::Received completed(std::uint16_t counter) noexcept {
        const std::uint32_t slot = counter & (count_ - 1);
        return {ids_[slot], begin_ + std::size_t{slot} * stride_,
                stride_ / sizeof(mlx5_wqe_data_seg)};
    }
    /// For Mlx5CompletionQueue: the scatter list is no longer needed, so the WQE may be used again.
    void release(std::uint16_t) noexcept {
        done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

private:
    friend class detail::Mlx5Receives<Mlx5ReceiveQueue, Lock>;

    Posted append(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        const std::size_t room = stride_ / sizeof(mlx5_wqe_data_seg);
        if (sges.size() > room) return Posted::kInvalid;
        const std::uint32_t outstanding = posted_ - done_.load(std::memory_order_acquire);
        HEDDLE_DEBUG_ASSERT(outstanding <= count_, "more receives completed than were posted");
        if (outstanding >= count_) return Posted::kFull;
        const std::uint32_t slot = posted_ & (count_ - 1);
        detail::put_scatter_list(begin_ + std::size_t{slot} * stride_, room, sges);
        ids_[slot] = id;
        ++posted_;
        return Posted::kOk;
    }
    void announce() noexcept {
        detail::order_memory_stores();
        detail::store_record(record_, htobe32(posted_ & 0xffff));
    }

    std::byte* begin_ = nullptr;
    std::uint32_t count_ = 0, stride_ = 0, qpn_;
    __be32* record_ = nullptr;
    std::uint32_t posted_ = 0;  // under lock_
    // The posting thread writes them; the polling thread reads them after the completion.
    std::vector<std::uint64_t> ids_;
    alignas(64) std::atomic<std::uint32_t> done_{0};  // written by the polling thread
};

/// An mlx5 shared receive queue, written without libmlx5. Any number of QPs take receives from it.
///
///     heddle::post::Mlx5SharedReceiveQueue<heddle::post::SpinLock> receives(srq);
///     completions.add_default(receives);
///     for (std::uint64_t id = 0; id < buffers; ++id) receives.post({&sge[id], 1}, id);
///     receives.ring_doorbell();
///
/// As soon as it exists, the program must not call ibv_post_srq_recv() for its SRQ: libmlx5 keeps
/// counters of its own. The SRQ must outlive it.
///
/// The device follows a list from WQE to WQE and fetches neighbours together. So free WQEs enter
/// the list in the order of their indices, the nearest one behind the end of the list first,
/// whatever the order in which they completed (rdma-core 4827e3388: 80 instead of 61 Gb/s with ten
/// RC QPs).
///
/// Thread safety: one lock for posting and for returning WQEs. With SingleThreaded one thread at a
/// time posts and polls, with SpinLock any thread does.
template <class Lock>
class Mlx5SharedReceiveQueue : public detail::Mlx5Receives<Mlx5SharedReceiveQueue<Lock>, Lock> {
public:
    /// Reads the layout of the SRQ. Receives that were posted by libibverbs stay posted.
    /// @throw VerbsError the device is not an mlx5
    explicit Mlx5SharedReceiveQueue(ibv_srq* srq) {
        const mlx5dv_srq out = detail::layout_of(srq);
        begin_ = static_cast<std::byte*>(out.buf);
        stride_ = out.stride;
        head_ = out.head;
        tail_ = out.tail;
        number_ = out.comp_mask & MLX5DV_SRQ_MASK_SRQN ? out.srqn : 0;
        record_ = out.dbrec;
        // Receives that the driver posted before stay counted.
        posted_ = static_cast<std::uint16_t>(be32toh(detail::load_word(record_)));
        entries_ = std::max(head_, tail_) + 1;
        HEDDLE_ASSERT(entries_ <= 1u << 16, "indices have 16 bits");
        HEDDLE_ASSERT(stride_ > sizeof(mlx5_wqe_srq_next_seg));
        ids_.resize(entries_);
        free_.resize(entries_);
        next_.resize(entries_);
        for (std::uint32_t index = 0; index < entries_; ++index) {
            __be16 next;
            std::memcpy(&next, next_in_ring(index), sizeof next);
            next_[index] = be16toh(next);
            HEDDLE_ASSERT(next_[index] < entries_, "the driver's list leaves the ring");
        }
        set_entries(entries_);
        ready_ = (tail_ + entries_ - head_) % entries_;
    }

    /// Returns the SRQ's number, by which XRC senders address it; 0: it has none. Any thread.
    std::uint32_t number() const noexcept { return number_; }

    /// Returns the number of WQEs in the ring. One of them is never posted.
    std::uint32_t entries() const noexcept { return entries_; }
    /// Gives WQEs memory of their own for good, so that post_again() need not write it. Called
    /// before any of them is posted.
    /// @param list `list(index, id)` sets the id and returns the SGE of the WQE at `index`
    /// @param begin,end the WQEs from `begin` to before `end`
    template <class List>
    void fill(const List& list, std::uint32_t begin, std::uint32_t end) noexcept {
        HEDDLE_ASSERT(begin <= end && end <= free_.size(), "the ring has fewer WQEs");
        for (std::uint32_t index = begin; index < end; ++index) {
            const ibv_sge sge = list(index, ids_[index]);
            detail::put_scatter_list(entry(index) + sizeof(mlx5_wqe_srq_next_seg), room(),
                                     {&sge, 1});
        }
    }
    /// The same for all WQEs in use.
    template <class List>
    void fill(const List& list) noexcept {
        fill(list, 0, entries_);
    }
    /// Uses only the first WQEs of the ring, until grow(). Called before the first post.
    /// @param count how many; all if the ring has fewer
    void begin_with(std::uint32_t count) noexcept {
        HEDDLE_ASSERT(head_ == 0 && posted_ == 0, "WQEs have been posted");
        set_entries(std::min(count, entries_));
        tail_ = entries_ - 1;
        ready_ = entries_ - 1;
    }
    /// Uses further WQEs of the ring, which fill() has filled: they are free.
    /// @param count how many in all, at most as many as the ring has
    void grow(std::uint32_t count) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        HEDDLE_ASSERT(count >= entries_ && count <= free_.size(), "the ring has fewer WQEs");
        const std::uint32_t before = entries_;
        set_entries(count);
        std::fill(free_.begin() + before, free_.begin() + entries_, std::uint8_t{1});
    }
    /// Posts free WQEs with the receives that fill() gave them. After fill() the program posts by
    /// this function only: the device finds the WQEs in its list, so no other code needs their
    /// indices.
    /// @param count how many; fewer are posted if fewer are free (one always stays free)
    void post_again(std::uint32_t count) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (ready_ < count) ready_ += chain(count - ready_);
        count = std::min(count, ready_);
        HEDDLE_DEBUG_ASSERT(ready_ < entries_, "one WQE always stays free");
        ready_ -= count;
        posted_ = static_cast<std::uint16_t>(posted_ + count);
        announce();
    }

    /// For Mlx5CompletionQueue: finds a completed receive.
    /// @param counter the WQE's index, as the CQE has it
    detail::Received completed(std::uint16_t counter) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return {counter < entries_ ? ids_[counter] : 0, list_of(counter), room()};
    }
    /// For Mlx5CompletionQueue: the WQE is free. chain() puts it into the list later.
    void release(std::uint16_t counter) noexcept {
        if (counter < entries_) [[likely]]
            release_own(counter);
    }
    /// For the polling thread: as release(), for an index that it has checked.
    /// @param counter less than entries()
    void release_own(std::uint32_t counter) noexcept {
        HEDDLE_DEBUG_ASSERT(counter < entries_);
        const std::lock_guard<Lock> guard(lock_);
        HEDDLE_DEBUG_ASSERT(free_[counter] == 0, "a WQE was returned twice");
        free_[counter] = 1;
    }

private:
    friend class detail::Mlx5Receives<Mlx5SharedReceiveQueue, Lock>;
    using detail::Mlx5Receives<Mlx5SharedReceiveQueue, Lock>::lock_;

    std::byte* entry(std::uint32_t index) const noexcept {
        return begin_ + std::size_t{index} * stride_;
    }
    const std::byte* list_of(std::uint32_t index) const noexcept {
        return entry(index) + sizeof(mlx5_wqe_srq_next_seg);
    }
    std::size_t room() const noexcept {
        return (stride_ - sizeof(mlx5_wqe_srq_next_seg)) / sizeof(mlx5_wqe_data_seg);
    }
    Posted append(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        if (sges.size() > room()) return Posted::kInvalid;
        if (head_ == tail_ && chain(1) == 0) return Posted::kFull;
        detail::put_scatter_list(entry(head_) + sizeof(mlx5_wqe_srq_next_seg), room(), sges);
        ids_[head_] = id;
        head_ = next_[head_];
        ++posted_;
        return Posted::kOk;
    }
    void announce() noexcept {
        detail::order_memory_stores();
        detail::store_record(record_, htobe32(posted_));
    }

    std::byte* next_in_ring(std::uint32_t index) const noexcept {
        return entry(index) + offsetof(mlx5_wqe_srq_next_seg, next_wqe_index);
    }
    std::uint32_t after(std::uint32_t index) const noexcept {
        return index + 1 == entries_ ? 0 : index + 1;
    }
    void set_entries(std::uint32_t count) noexcept {
        entries_ = count;
        irregular_ = 0;
        for (std::uint32_t index = 0; index < entries_; ++index)
            irregular_ += next_[index] != after(index);
    }
    // Moves up to `count` free WQEs to the end of the list. Returns how many it found.
    std::uint32_t chain(std::uint32_t count) noexcept {
        if (irregular_ != 0 || count >= entries_ - tail_ || !all_free(tail_ + 1, count))
            [[unlikely]]
            return chain_one_by_one(count);
        // The usual case: they are the next ones in the ring, and so they are linked already.
        std::memset(&free_[tail_ + 1], 0, count);
        tail_ += count;
        return count;
    }
    [[gnu::noinline]] std::uint32_t chain_one_by_one(std::uint32_t count) noexcept {
        std::uint32_t chained = 0, at = tail_;
        for (std::uint32_t passed = 1; passed < entries_ && chained != count; ++passed) {
            at = after(at);
            if (free_[at] == 0) continue;
            free_[at] = 0;
            link(tail_, at);
            tail_ = at;
            ++chained;
        }
        return chained;
    }
    void link(std::uint32_t from, std::uint32_t to) noexcept {
        HEDDLE_DEBUG_ASSERT(from < entries_ && to < entries_ && from != to);
        if (next_[from] == to) return;
        irregular_ -= next_[from] != after(from);
        next_[from] = static_cast<std::uint16_t>(to);
        irregular_ += next_[from] != after(from);
        const __be16 index = htobe16(next_[from]);
        std::memcpy(next_in_ring(from), &index, sizeof index);
    }
    bool all_free(std::uint32_t from, std::uint32_t count) const noexcept {
        constexpr std::uint32_t kAtOnce = sizeof kAllFree;
        for (; count >= kAtOnce; from += kAtOnce, count -= kAtOnce) {
            std::uint64_t eight;
            std::memcpy(&eight, &free_[from], sizeof eight);
            if (eight != kAllFree) return false;
        }
        for (; count != 0; ++from, --count)
            if (free_[from] == 0) return false;
        return true;
    }

    static constexpr std::uint64_t kAllFree = 0x0101010101010101;
    std::byte* begin_ = nullptr;
    std::uint32_t stride_ = 0, number_ = 0, entries_ = 0;
    __be32* record_ = nullptr;
    // The lock guards everything below.
    // First and last WQE of the list that may be posted; the last one always stays.
    std::uint32_t head_ = 0, tail_ = 0;
    std::uint32_t ready_ = 0;  // WQEs of the list that post_again() may post
    std::uint16_t posted_ = 0;
    std::vector<std::uint8_t> free_;   // 1: free and not in the list
    std::vector<std::uint16_t> next_;  // a copy of the list in the ring
    std::uint32_t irregular_ = 0;      // WQEs whose successor is not their neighbour
    std::vector<std::uint64_t> ids_;
};

}  // namespace heddle::post
