// SPDX-License-Identifier: BSD-2-Clause
// The direct path's receives: on a QP's own ring, and on a shared receive queue, whose entries form
// a list (PRM "Receive WQE", "SRQ WQE next segment"). Once made, nobody may post there with
// ibv_post_recv or ibv_post_srq_recv: libmlx5 keeps counters of its own.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "heddle/error.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/stores.h"
#include "heddle/post/work_request.h"

namespace heddle::post {

// A scatter list in an entry of `room` segments: behind a shorter one the device must find an end.
inline void put_scatter_list(std::byte* at, std::size_t room,
                             std::span<const ibv_sge> sges) noexcept {
    constexpr std::uint32_t kNoKey = 0x100;  // PRM: ends the list
    const auto put = [&](std::uint32_t bytes, std::uint32_t key, std::uint64_t address) {
        mlx5_wqe_data_seg segment{htobe32(bytes), htobe32(key), htobe64(address)};
        std::memcpy(at, &segment, sizeof segment);
        at += sizeof segment;
    };
    std::size_t used = 0;
    for (const ibv_sge& sge : sges) {
        if (sge.length == 0) continue;  // zero would stand for 2 GiB
        put(sge.length, sge.lkey, sge.addr);
        ++used;
    }
    if (used < room) put(0, kNoKey, 0);
}

// Payload that came in the completion itself goes where the list at `at` says.
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

// A completion that a receive queue has taken apart: its id, and the list of its entry.
struct Received {
    std::uint64_t id = 0;
    const std::byte* list = nullptr;
    std::size_t room = 0;
};

// Posting to a queue of either kind. Queue: append(sges, id) puts an entry into the ring,
// announce() counts it in the doorbell record; both are called under lock_.
template <class Queue, class Lock>
class Mlx5Receives {
public:
    // Puts an entry into the ring; the device learns of it at the next ring_doorbell().
    Posted post(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return queue().append(sges, id);
    }
    // kOk always: there was room when the entry was made.
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        queue().announce();
        return Posted::kOk;
    }
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

// Lock: SingleThreaded or SpinLock.
template <class Lock>
class Mlx5ReceiveQueue : public Mlx5Receives<Mlx5ReceiveQueue<Lock>, Lock> {
public:
    // Throws VerbsError.
    explicit Mlx5ReceiveQueue(ibv_qp* qp) : qpn_(qp->qp_num) {
        const mlx5dv_qp out = shown(qp);
        if (out.rq.wqe_cnt == 0)
            throw VerbsError("receives of QP " + std::to_string(qpn_), EINVAL,
                             "it was made without a receive queue (receive_depth, or an SRQ)");
        begin_ = static_cast<std::byte*>(out.rq.buf);
        count_ = out.rq.wqe_cnt;
        stride_ = out.rq.stride;
        record_ = out.dbrec + MLX5_RCV_DBR;
        ids_.resize(count_);
    }

    std::uint32_t qpn() const noexcept { return qpn_; }

    // By who polls the CQ. `counter` says which entry the message took: the order of completions
    // need not be that of the entries (rdma-core 7e8db6fbd).
    Received completed(std::uint16_t counter) noexcept {
        const std::uint32_t slot = counter & (count_ - 1);
        return {ids_[slot], begin_ + std::size_t{slot} * stride_,
                stride_ / sizeof(mlx5_wqe_data_seg)};
    }
    // Its list is not needed any more: the entry may be used again.
    void release(std::uint16_t) noexcept {
        done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

private:
    friend class Mlx5Receives<Mlx5ReceiveQueue, Lock>;

    Posted append(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        const std::size_t room = stride_ / sizeof(mlx5_wqe_data_seg);
        if (sges.size() > room) return Posted::kInvalid;
        if (posted_ - done_.load(std::memory_order_acquire) >= count_) return Posted::kFull;
        const std::uint32_t slot = posted_ & (count_ - 1);
        put_scatter_list(begin_ + std::size_t{slot} * stride_, room, sges);
        ids_[slot] = id;
        ++posted_;
        return Posted::kOk;
    }
    void announce() noexcept {
        order_memory_stores();
        store_record(record_, htobe32(posted_ & 0xffff));
    }

    std::byte* begin_ = nullptr;
    std::uint32_t count_ = 0, stride_ = 0, qpn_;
    __be32* record_ = nullptr;
    std::uint32_t posted_ = 0;        // under lock_
    std::vector<std::uint64_t> ids_;  // by who posts, read by who polls after the completion
    alignas(64) std::atomic<std::uint32_t> done_{0};  // by who polls
};

// Fed and emptied by any number of QPs. One lock for posting and for giving entries back.
//
// The device follows the list from entry to entry, and fetches neighbours together: entries that
// come back in any order are put into the list in the order of their numbers, the nearest behind
// its end first (rdma-core 4827e3388: 80 instead of 61 Gb/s by ten RC QPs).
template <class Lock>
class Mlx5SharedReceiveQueue : public Mlx5Receives<Mlx5SharedReceiveQueue<Lock>, Lock> {
public:
    // Throws VerbsError.
    explicit Mlx5SharedReceiveQueue(ibv_srq* srq) {
        const mlx5dv_srq out = shown(srq);
        begin_ = static_cast<std::byte*>(out.buf);
        stride_ = out.stride;
        head_ = out.head;
        tail_ = out.tail;
        number_ = out.comp_mask & MLX5DV_SRQ_MASK_SRQN ? out.srqn : 0;
        record_ = out.dbrec;
        // what was posted before, by the driver, stays counted
        posted_ = static_cast<std::uint16_t>(be32toh(load_word(record_)));
        entries_ = std::max(head_, tail_) + 1;
        ids_.resize(entries_);
        free_.resize(entries_);
        next_.resize(entries_);
        for (std::uint32_t index = 0; index < entries_; ++index) {
            __be16 next;
            std::memcpy(&next, next_in_ring(index), sizeof next);
            next_[index] = be16toh(next);
        }
        set_entries(entries_);
        ahead_ = (tail_ + entries_ - head_) % entries_;
    }

    std::uint32_t number() const noexcept { return number_; }

    // For a user that gives each entry memory of its own, for good. entries(): how many are used;
    // one of them is never posted. fill(list, begin, end): list(index, id) is the receive of each
    // of these entries, none of which has been posted.
    std::uint32_t entries() const noexcept { return entries_; }
    template <class List>
    void fill(const List& list, std::uint32_t begin, std::uint32_t end) noexcept {
        for (std::uint32_t index = begin; index < end; ++index) {
            const ibv_sge sge = list(index, ids_[index]);
            put_scatter_list(entry(index) + sizeof(mlx5_wqe_srq_next_seg), room(), {&sge, 1});
        }
    }
    template <class List>
    void fill(const List& list) noexcept {
        fill(list, 0, entries_);
    }
    // Only the first `count` entries are used, until grow(). Before the first post.
    void begin_with(std::uint32_t count) noexcept {
        set_entries(std::min(count, entries_));
        tail_ = entries_ - 1;
        ahead_ = entries_ - 1 - head_;
    }
    // The entries that follow are used, too, up to `count` in all: they are free. Fill them first,
    // by fill(). The queue was made with as many.
    void grow(std::uint32_t count) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const std::uint32_t before = entries_;
        set_entries(std::clamp(count, before, static_cast<std::uint32_t>(free_.size())));
        std::fill(free_.begin() + before, free_.begin() + entries_, std::uint8_t{1});
    }
    // Posts so many free entries (one always stays free), with the receives they have. Only after
    // fill(), and then nothing else may be posted: which entries these are the device knows, as
    // they are a list, and nobody else has to.
    void post_again(std::uint32_t count) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (ahead_ < count) ahead_ += chain(count - ahead_);
        count = std::min(count, ahead_);
        ahead_ -= count;
        posted_ = static_cast<std::uint16_t>(posted_ + count);
        announce();
    }

    // By who polls the CQ: `counter` is the entry's index.
    Received completed(std::uint16_t counter) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return {counter < entries_ ? ids_[counter] : 0, list_of(counter), room()};
    }
    // The entry is free: chain() puts it into the list.
    void release(std::uint16_t counter) noexcept {
        if (counter < entries_) [[likely]]
            release_own(counter);
    }
    void release_own(std::uint32_t counter) noexcept {  // one of entries()
        const std::lock_guard<Lock> guard(lock_);
        free_[counter] = 1;
    }

private:
    friend class Mlx5Receives<Mlx5SharedReceiveQueue, Lock>;
    using Mlx5Receives<Mlx5SharedReceiveQueue, Lock>::lock_;

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
        put_scatter_list(entry(head_) + sizeof(mlx5_wqe_srq_next_seg), room(), sges);
        ids_[head_] = id;
        head_ = next_[head_];
        ++posted_;
        return Posted::kOk;
    }
    void announce() noexcept {
        order_memory_stores();
        store_record(record_, htobe32(posted_));
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
    // Free entries, up to `count`, go to the end of the list. Returns how many there were.
    std::uint32_t chain(std::uint32_t count) noexcept {
        if (irregular_ != 0 || count >= entries_ - tail_ || !all_free(tail_ + 1, count))
            [[unlikely]]
            return chain_one_by_one(count);
        // Mostly: they are the next ones, and linked so already.
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
    // under lock_
    std::uint32_t head_ = 0, tail_ = 0;  // of the list's entries to be posted; one always stays
    std::uint32_t ahead_ = 0;            // of post_again(): how many of the list it may post
    std::uint16_t posted_ = 0;
    std::vector<std::uint8_t> free_;   // 1: free, and not in the list
    std::vector<std::uint16_t> next_;  // the list, as it is in the ring
    std::uint32_t irregular_ = 0;      // entries whose next one is not their neighbour
    std::vector<std::uint64_t> ids_;
};

}  // namespace heddle::post
