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
#include <memory>
#include <mutex>
#include <string_view>

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
        ring_.mask = ring_.blocks - 1;
        ring_.end = ring_.begin + std::size_t{ring_.blocks} * kBlock;
        record_ = out.dbrec + MLX5_SND_DBR;
        uuar_ = uuar_at(out.bf.reg, out.bf.size, register_shared);
        const RegisterPolicy policy = register_policy();
        if (policy.blueflame) blueflame_inline_ = uuar_->half_bytes / kUnit;
        if (policy.blueflame_for_all) blueflame_gathered_ = blueflame_inline_;
        if (depth_ == 0 || depth_ > ring_.blocks) depth_ = ring_.blocks;
        ends_mask_ = std::bit_ceil(depth_) - 1;
        ends_ = std::make_unique<std::uint16_t[]>(ends_mask_ + 1);
        ids_ = std::make_unique<std::uint64_t[]>(ends_mask_ + 1);
        qpn_and_units_of_small_ = std::uint64_t{htobe32(qpn_ << 8 | (xrc_ ? 4 : 3))} << 32;
        flags_of_small_[0] = htobe32(mode_);
        flags_of_small_[1] = htobe32(std::uint32_t{mode_} | MLX5_WQE_CTRL_CQ_UPDATE);
        small_goes_whole_ = xrc_ && !uuar_->shared && blueflame_inline_ >= kUnitsInBlock;
    }

    // Completions tell `base` + the number of the work (0, 1, ...; 32 bits) for its id, whatever
    // Work::id says, which then need not be kept. Before the first post.
    void count_ids_from(std::uint64_t base) {
        id_base_ = base;
        ids_.reset();
    }

    std::uint32_t qpn() const noexcept { return qpn_; }

    // Puts an entry into the ring; the device learns of it at the next ring_doorbell().
    Posted post(const WorkRequest& work) noexcept {
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
    // flags, number of sges - is not asked when it runs.
    [[gnu::always_inline]] Posted post_now(const WorkRequest& work) noexcept {
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

    // What most messages of MPI programs are: a SEND of 16 bytes (`first`, `second`) and up to 8
    // more (`tail`), all as they lie in memory, inline, alone behind its doorbell: one block, all
    // of whose words are known here. `srq`: an SRQ's number, of four bytes in network order.
    // `noted` is called once there is room, before the device is told. kInvalid: not by a queue
    // that has entries without a doorbell, carries fewer bytes, or does not count ids
    // (count_ids_from).
    template <bool kImmediate, class Noted>
    [[gnu::always_inline]] Posted post_small(std::uint64_t first, std::uint64_t second,
                                             std::uint64_t tail, std::uint32_t tail_bytes,
                                             std::uint32_t immediate, std::uint64_t srq,
                                             bool signaled, const Noted& noted) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (number_ == small_until_) [[unlikely]] {
            if (const Posted refused = find_room_for_small(); refused != Posted::kOk)
                return refused;
        }
        // The inline segment begins with its length, so all words are shifted by four bytes.
        const std::uint32_t length = htobe32((kUnit + tail_bytes) | MLX5_INLINE_SEG);
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

    // By who polls the CQ: the entry that began at `counter`, and all before it, are done. Returns
    // its id.
    std::uint64_t completed(std::uint16_t counter) noexcept {
        given_back_by_device(ends_.get());
        const std::uint64_t done = done_.load(std::memory_order_relaxed);
        const auto from = static_cast<std::uint16_t>(done);
        const auto ahead = static_cast<std::uint16_t>(counter - from);
        auto number = static_cast<std::uint32_t>(done >> 16);
        // Each is passed once. More than depth_ of them is not possible.
        for (std::uint32_t most = depth_; most != 0; --most) {
            ++number;
            const auto end = static_cast<std::uint16_t>(ends_[number & ends_mask_] - from);
            if (end > ahead) break;
        }
        const std::size_t at = number & ends_mask_;
        const std::uint64_t id = ids_ == nullptr ? id_base_ + (number - 1) : ids_[at];
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

    [[gnu::always_inline]] Posted append(const WorkRequest& work, Last& last) noexcept {
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
        const std::size_t at = number_ & ends_mask_;
        ends_[at] = counter_;
        if (ids_ != nullptr) ids_[at] = work.id;
        small_until_ = number_;  // it may have taken more than a block
        return Posted::kOk;
    }

    // The words of an entry of post_small().
    struct SmallEntry {
        std::uint64_t control[2];
        std::uint64_t srq;
        std::uint64_t payload[4];
    };
    // By eight bytes, in ascending order, and a whole block, as registers want it.
    template <bool kXrc>
    [[gnu::always_inline]] static void store(const SmallEntry& entry, std::byte* to) noexcept {
        store_register(to, entry.control[0]);
        store_register(to + 8, entry.control[1]);
        if (kXrc) {
            store_register(to + 16, entry.srq);
            store_register(to + 24, 0);
        }
        std::byte* const at = to + (kXrc ? 2 : 1) * kUnit;
        store_register(at, entry.payload[0]);
        store_register(at + 8, entry.payload[1]);
        store_register(at + 16, entry.payload[2]);
        store_register(at + 24, entry.payload[3]);
        if (!kXrc) {
            store_register(to + 48, 0);
            store_register(to + 56, 0);
        }
    }
    // An entry with an XRC segment, to a register that is ours alone, from the words at hand.
    [[gnu::always_inline]] void ring_small(const SmallEntry& entry, std::byte* begin,
                                           std::uint16_t end) noexcept {
        store<true>(entry, begin);
        handed_to_device(ends_.get());
        order_memory_stores();
        store_record(record_, htobe32(end));
        Uuar& uuar = *uuar_;
        std::byte* const at = uuar.address + uuar.offset;
        begin_register_stores();
        store<true>(entry, at);
        end_register_stores();
        uuar.offset ^= uuar.half_bytes;
        if (hook_ != nullptr) hook_(at);
    }
    [[gnu::noinline]] void ring_one(const std::byte* entry, std::uint32_t units) noexcept {
        ring_register({entry, units}, blueflame_inline_);
    }
    // Looks at what is done only when what was known to be free has been used.
    [[gnu::noinline]] Posted find_room_for_small() noexcept {
        if (pending_ != 0 || ids_ != nullptr || max_inline_ < kUnit + sizeof(std::uint64_t))
            return Posted::kInvalid;
        const std::uint64_t done = done_.load(std::memory_order_acquire);
        const auto used = static_cast<std::uint16_t>(counter_ - done);
        const std::uint32_t works = number_ - static_cast<std::uint32_t>(done >> 16);
        small_until_ = number_ + std::min(ring_.blocks - used, depth_ - works);
        return small_until_ != number_ ? Posted::kOk : Posted::kFull;
    }

    // blueflame_units: a list of one whose entry has no more of them goes whole.
    [[gnu::always_inline]] void ring_register(const Last& last,
                                              std::uint32_t blueflame_units) noexcept {
        handed_to_device(ends_.get());
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
    std::uint64_t qpn_and_units_of_small_ = 0;  // parts of its control segment
    std::uint64_t flags_of_small_[2] = {};      // not signaled, signaled
    bool small_goes_whole_ = false;             // by ring_small()
    // under lock_
    std::uint32_t number_ = 0;   // of works, free-running
    std::uint16_t counter_ = 0;  // blocks put into the ring, free-running
    std::uint32_t pending_ = 0;  // entries since the last doorbell
    bool has_inline_ = false;
    Last last_{};
    std::uint32_t small_until_ = 0;  // up to that number there is room for works of one block
    // By who posts, read by who polls after the completion: of a work, by its number, the block
    // behind its entry, and its id.
    std::unique_ptr<std::uint16_t[]> ends_;
    std::unique_ptr<std::uint64_t[]> ids_;  // nullptr: counted
    std::uint32_t ends_mask_ = 0;
    std::uint64_t id_base_ = 0;
    alignas(64) std::atomic<std::uint64_t> done_{0};  // by who polls: number << 16 | end
};

}  // namespace heddle::post
