// SPDX-License-Identifier: BSD-2-Clause
// The direct path's send queue: entries go into the ring that mlx5dv_init_obj shows, then the
// doorbell record, then the register. "Leveraging mlx5 direct verbs"; scalable endpoints, section
// II.B.
//
// Once made for a QP, nobody may post to it with ibv_post_send: libmlx5 keeps a counter of its own.
// Lock: SingleThreaded or SpinLock, of the queue; that of a shared uUAR is taken besides.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "heddle/post/mlx5_entry.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/softhca_hooks.h"
#include "heddle/post/stores.h"
#include "heddle/post/uuar.h"

namespace heddle::post {

// What libmlx5 makes of its environment variables when it opens a device; the direct path does the
// same when a queue is made, so that queues of one process can differ.
struct RegisterPolicy {
    bool blueflame_for_all = true;  // MLX5_POST_SEND_PREFER_BF; else inline entries only
    bool blueflame = true;          // not MLX5_SHUT_UP_BF
};
inline RegisterPolicy register_policy() noexcept {
    const char* prefer = std::getenv("MLX5_POST_SEND_PREFER_BF");
    const char* shut = std::getenv("MLX5_SHUT_UP_BF");
    RegisterPolicy policy;
    policy.blueflame_for_all = prefer == nullptr || std::string_view(prefer) != "0";
    policy.blueflame = shut == nullptr || std::string_view(shut) == "0";
    return policy;
}

template <class Lock>
class Mlx5SendQueue {
public:
    // register_shared: the driver may put QPs of other threads on this uUAR. depth: no more works
    // than that at once, for which the CQ has room; 0: as many as the ring takes. Throws
    // VerbsError.
    Mlx5SendQueue(ibv_qp* qp, bool signal_all, std::uint32_t max_inline, bool register_shared,
                  std::uint32_t depth = 0)
        : depth_(depth),
          qpn_(qp->qp_num),
          xrc_(qp->qp_type == IBV_QPT_XRC_SEND),
          mode_(signal_all ? MLX5_WQE_CTRL_CQ_UPDATE : 0),
          max_inline_(max_inline) {
        const mlx5dv_qp out = shown(qp);
        ring_.begin = static_cast<std::byte*>(out.sq.buf);
        ring_.blocks = out.sq.wqe_cnt;
        ring_.end = ring_.begin + std::size_t{ring_.blocks} * kBlock;
        record_ = out.dbrec + MLX5_SND_DBR;
        uuar_ = uuar_at(out.bf.reg, out.bf.size, register_shared);
        const RegisterPolicy policy = register_policy();
        if (policy.blueflame) blueflame_inline_ = uuar_->half_bytes / kUnit;
        if (policy.blueflame_for_all) blueflame_gathered_ = blueflame_inline_;
        if (depth_ == 0 || depth_ > ring_.blocks) depth_ = ring_.blocks;
        ends_.resize(std::bit_ceil(depth_));
        ids_.resize(ends_.size());
    }

    // Completions tell `base` + the number of the work (0, 1, ...; 32 bits) for its id, whatever
    // Work::id says, which then need not be kept. Before the first post.
    void count_ids_from(std::uint64_t base) {
        id_base_ = base;
        ids_ = {};
    }

    std::uint32_t qpn() const noexcept { return qpn_; }

    // Puts an entry into the ring; the device learns of it at the next ring_doorbell().
    Posted post(const Work& work) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const Posted posted = append(work, last_);
        if (posted == Posted::kOk) {
            has_inline_ = has_inline_ || (work.flags & kInline);
            ++pending_;
        }
        return posted;
    }
    // kOk always: there was room when the entry was made.
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (pending_ != 0) ring_pending();
        return Posted::kOk;
    }
    // Both in one. Inlined, so that what the caller knows of the work when it is compiled - opcode,
    // flags, number of pieces - is not asked when it runs.
    [[gnu::always_inline]] Posted post_now(const Work& work) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        Last last;
        const Posted posted = append(work, last);
        if (posted != Posted::kOk) return posted;
        if (pending_ == 0) [[likely]] {
            ring_register(last, blueflame_units(work.flags & kInline));
        } else {
            last_ = last;
            has_inline_ = has_inline_ || (work.flags & kInline);
            ++pending_;
            ring_pending();
        }
        return posted;
    }

    // What most messages of MPI programs are: a SEND of 16 bytes and up to 8 more (`tail`, as they
    // lie in memory), inline, alone behind its doorbell. One block, all of whose words are known
    // here. kInvalid: not by a queue that has entries without a doorbell.
    template <bool kImmediate>
    [[gnu::always_inline]] Posted post_small(const std::byte* head, std::uint64_t tail,
                                             std::uint32_t tail_bytes, std::uint32_t immediate,
                                             std::uint32_t srq, bool signaled,
                                             std::uint64_t id) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const std::uint64_t done = done_.load(std::memory_order_acquire);
        if (static_cast<std::uint16_t>(counter_ - done) == ring_.blocks ||
            number_ - static_cast<std::uint32_t>(done >> 16) >= depth_) [[unlikely]]
            return Posted::kFull;
        if (pending_ != 0 || max_inline_ < kUnit + sizeof tail) [[unlikely]]
            return Posted::kInvalid;
        std::byte* const begin = ring_.block(counter_);
        const std::uint32_t units = xrc_ ? 4 : 3;
        const std::uint32_t first[4] = {
            htobe32(std::uint32_t{counter_} << 8 |
                    (kImmediate ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND)),
            htobe32(qpn_ << 8 | units),
            htobe32(std::uint32_t{mode_} | (signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0)),
            kImmediate ? htobe32(immediate) : 0};
        std::memcpy(begin, first, sizeof first);
        std::byte* at = begin + kUnit;
        if (xrc_) {
            put_segment(at, htobe32(srq), 0);
        }
        const std::uint32_t length = htobe32((kUnit + tail_bytes) | MLX5_INLINE_SEG);
        std::memcpy(at, &length, sizeof length);
        std::memcpy(at + sizeof length, head, kUnit);
        std::memcpy(at + sizeof length + kUnit, &tail, sizeof tail);
        ++number_;
        ++counter_;
        const std::size_t slot = number_ & (ends_.size() - 1);
        ends_[slot] = counter_;
        if (!ids_.empty()) ids_[slot] = id;
        ring_register({begin, units}, blueflame_inline_);
        return Posted::kOk;
    }

    // By who polls the CQ: the entry that began at `counter`, and all before it, are done. Returns
    // its id.
    std::uint64_t completed(std::uint16_t counter) noexcept {
        given_back_by_device(ends_.data());
        const std::uint64_t done = done_.load(std::memory_order_relaxed);
        const auto from = static_cast<std::uint16_t>(done);
        const auto ahead = static_cast<std::uint16_t>(counter - from);
        auto number = static_cast<std::uint32_t>(done >> 16);
        // Each is passed once. More than depth_ of them is not possible.
        for (std::uint32_t most = depth_; most != 0; --most) {
            ++number;
            const auto end = static_cast<std::uint16_t>(ends_[number & (ends_.size() - 1)] - from);
            if (end > ahead) break;
        }
        const std::size_t at = number & (ends_.size() - 1);
        const std::uint64_t id = ids_.empty() ? id_base_ + (number - 1) : ids_[at];
        done_.store(std::uint64_t{number} << 16 | ends_[at], std::memory_order_release);
        return id;
    }

    // By who polls: the answer of the READ or atomic that began at `counter` came in its
    // completion.
    void answered(std::uint16_t counter, const std::byte* payload, std::size_t bytes) noexcept {
        const EntryReader entry(ring_, counter);
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
    // What the register is told of the last entry.
    struct Last {
        const std::byte* entry;
        std::uint32_t units;
    };

    [[gnu::always_inline]] Posted append(const Work& work, Last& last) noexcept {
        const EntryShape shape = entry_shape(work, xrc_);
        // 63: the field has six bits
        if (shape.units > 63 || shape.inline_bytes > max_inline_ ||
            (work.flags & kInline && !may_be_inline(work.opcode)))
            return Posted::kInvalid;
        const std::uint32_t blocks = (shape.units + kUnitsInBlock - 1) / kUnitsInBlock;
        const std::uint64_t done = done_.load(std::memory_order_acquire);
        const auto used = static_cast<std::uint16_t>(counter_ - done);
        const std::uint32_t works = number_ - static_cast<std::uint32_t>(done >> 16);
        if (used + blocks > ring_.blocks || works >= depth_) return Posted::kFull;
        last = {build_entry(ring_, counter_, qpn_, xrc_, mode_, work, shape), shape.units};
        ++number_;
        counter_ = static_cast<std::uint16_t>(counter_ + blocks);
        const std::size_t at = number_ & (ends_.size() - 1);
        ends_[at] = counter_;
        if (!ids_.empty()) ids_[at] = work.id;
        return Posted::kOk;
    }

    // blueflame_units: a list of one whose entry has no more of them goes whole.
    [[gnu::always_inline]] void ring_register(const Last& last,
                                              std::uint32_t blueflame_units) noexcept {
        handed_to_device(ends_.data());
        order_memory_stores();
        store_record(record_, htobe32(counter_));
        Uuar& uuar = *uuar_;
        if (uuar.shared) uuar.lock.lock();
        std::byte* const at = uuar.address + uuar.offset;
        begin_register_stores();
        if (last.units <= blueflame_units && last.units > 1) {  // the device need not fetch it
            const std::byte* from = last.entry;
            std::uint32_t offset = 0;
            do {
                store_register64(at + offset, from);
                from += kBlock;
                if (from == ring_.end) from = ring_.begin;
                offset += kBlock;
            } while (offset < last.units * kUnit);
        } else {
            std::uint64_t first;
            std::memcpy(&first, last.entry, sizeof first);
            store_register(at, first);
        }
        end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (uuar.shared) uuar.lock.unlock();
        if (hook_ != nullptr) hook_(at);
    }

    // What was put into the ring by post().
    [[gnu::noinline]] void ring_pending() noexcept {
        ring_register(last_, pending_ == 1 ? blueflame_units(has_inline_) : 0);
        pending_ = 0;
        has_inline_ = false;
    }

    std::uint32_t blueflame_units(bool is_inline) const noexcept {
        return is_inline ? blueflame_inline_ : blueflame_gathered_;
    }

    Lock lock_;
    Ring ring_;
    std::uint32_t depth_;
    __be32* record_ = nullptr;
    std::shared_ptr<Uuar> uuar_;
    std::uint32_t qpn_;
    bool xrc_;
    std::uint8_t mode_;
    std::uint32_t max_inline_;
    std::uint32_t blueflame_inline_ = 0, blueflame_gathered_ = 0;  // most units; 0: never
    Doorbell hook_ = doorbell_hook();
    // under lock_
    std::uint32_t number_ = 0;   // of works, free-running
    std::uint16_t counter_ = 0;  // blocks put into the ring, free-running
    std::uint32_t pending_ = 0;  // entries since the last doorbell
    bool has_inline_ = false;
    Last last_{};
    // By who posts, read by who polls after the completion: of a work, by its number, the block
    // behind its entry, and its id.
    std::vector<std::uint16_t> ends_;
    std::vector<std::uint64_t> ids_;
    std::uint64_t id_base_ = 0;
    alignas(64) std::atomic<std::uint64_t> done_{0};  // by who polls: number << 16 | end
};

}  // namespace heddle::post
