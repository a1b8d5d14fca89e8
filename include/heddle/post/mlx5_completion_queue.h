// SPDX-License-Identifier: BSD-2-Clause
// The direct path's completion queue: an entry is ours when its owner bit is that of this pass over
// the ring. PRM "Completion Queue Entry"; error entries "Completion with error".
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/post/lock.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/mlx5_receive_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/softhca_hooks.h"
#include "heddle/post/stores.h"
#include "heddle/post/uuar.h"
#include "heddle/post/work_request.h"

namespace heddle::post {

// IBTA 11.6.2 statuses for the device's syndromes.
ibv_wc_status status_of(std::uint8_t syndrome) noexcept;

// Lock: as of the queues that report here.
template <class Lock>
class Mlx5CompletionQueue {
public:
    using SendQueue = Mlx5SendQueue<Lock>;
    using ReceiveQueue = Mlx5ReceiveQueue<Lock>;
    using SharedReceiveQueue = Mlx5SharedReceiveQueue<Lock>;

    explicit Mlx5CompletionQueue(ibv_cq* cq) {
        const mlx5dv_cq out = shown(cq);
        entry_bytes_ = out.cqe_size;
        // entries of 128 bytes have theirs in the second half
        begin_ = at_ = static_cast<std::byte*>(out.buf) + (entry_bytes_ - sizeof(mlx5_cqe64));
        end_ = begin_ + std::size_t{out.cqe_cnt} * entry_bytes_;
        record_ = out.dbrec;
        // One for all CQs of a context, whose threads know nothing of each other.
        arming_ = uuar_at(static_cast<std::byte*>(out.cq_uar) + 0x20, 0, true);  // MLX5_CQ_DOORBELL
        number_ = out.cqn;
    }

    // Queues that report here, each before its first completion. By one thread, while none polls.
    void add(SendQueue& queue) { reporter(queue.qpn()).send = &queue; }
    void add(ReceiveQueue& queue) { reporter(queue.qpn()).receive = &queue; }
    // The QP of that number receives from `queue` (an XRC target: of which the SRQ is made).
    void add(SharedReceiveQueue& queue, std::uint32_t qpn) { reporter(qpn).shared = &queue; }
    // All other QPs receive from `queue`: XRC targets may be made while this is polled, by threads
    // that cannot tell their numbers here.
    void add_default(SharedReceiveQueue& queue) noexcept {
        nobody_.shared = &queue;
        last_ = {};
    }

    // Up to `most` completions. The id of a work whose queue is not known here is 0.
    unsigned poll(Completion* out, unsigned most) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        unsigned found = 0;
        while (found < most) {
            const mlx5_cqe64* const cqe = found == 0 ? first() : next();
            if (cqe == nullptr) break;
            pop();
            translate(*cqe, out[found++]);
        }
        if (found != 0) publish();
        return found;
    }

    // The same one by one, for who is the only thread here, and deals with plain messages - what a
    // SEND put into the memory of an entry of an SRQ, or into the completion queue entry - where
    // they are found: first(), or next() behind others; pop(); is_message() or
    // is_inlined_message(), and Message, or completion(); publish() in the end.
    const mlx5_cqe64* first() noexcept {
        const mlx5_cqe64* const cqe = next();
        if (cqe != nullptr) [[likely]]
            return cqe;
        return empty_hook_ != nullptr && empty_hook_() ? next() : nullptr;
    }
    const mlx5_cqe64* next() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & MLX5_CQE_OWNER_MASK) != 0 || own >> 4 == MLX5_CQE_INVALID)
            return nullptr;
        order_device_loads();
        return &front();
    }
    // For who leaves everything else, and an empty queue, to first(): next() is a message, front().
    bool has_message() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & (kKindOfMessage | MLX5_CQE_OWNER_MASK)) != kMessage) return false;
        order_device_loads();
        return true;
    }
    // The same of a small message that came in the entry itself (scatter to CQE), after
    // has_message() said no.
    bool has_inlined_message() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & (kKindOfInlined | MLX5_CQE_OWNER_MASK)) != kMessage) return false;
        order_device_loads();
        return true;
    }
    const mlx5_cqe64& front() const noexcept { return *reinterpret_cast<const mlx5_cqe64*>(at_); }
    void pop() noexcept {
        ++consumer_;
        at_ += entry_bytes_;
        if (at_ == end_) [[unlikely]] {
            at_ = begin_;
            owner_ ^= 1;
        }
    }
    // Has the device written the entry that is `count` behind front()? count: less than the queue
    // has entries.
    bool has_entry_ahead(std::uint32_t count) const noexcept {
        const std::byte* at = at_ + std::size_t{count} * entry_bytes_;
        const bool wraps = at >= end_;
        if (wraps) at -= end_ - begin_;
        const std::uint8_t own = owner_byte(*reinterpret_cast<const mlx5_cqe64*>(at));
        return ((own ^ owner_ ^ (wraps ? 1 : 0)) & MLX5_CQE_OWNER_MASK) == 0 &&
               own >> 4 != MLX5_CQE_INVALID;
    }
    std::uint32_t consumer() const noexcept { return consumer_; }  // entries popped, free-running
    void publish() noexcept { store_record(record_, htobe32(consumer_ & 0xffffff)); }

    static bool is_message(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & kKindOfMessage) == kMessage;
    }
    // After is_message() said no: is it one whose bytes are in the entry, at inlined_bytes()?
    static bool is_inlined_message(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & kKindOfInlined) == kMessage;
    }
    // Until publish(): in its first half, or in the 64 bytes before an entry of 128.
    static const std::byte* inlined_bytes(const mlx5_cqe64& cqe) noexcept {
        const auto* begin = reinterpret_cast<const std::byte*>(&cqe);
        return cqe.op_own & MLX5_INLINE_SCATTER_32 ? begin : begin - sizeof cqe;
    }
    // What an entry says of it, until publish().
    class Message {
    public:
        explicit Message(const mlx5_cqe64& cqe) noexcept : cqe_(cqe) {}
        std::uint16_t entry() const noexcept { return be16toh(cqe_.wqe_counter); }  // release() it
        std::uint32_t bytes() const noexcept { return be32toh(cqe_.byte_cnt); }
        std::uint32_t qpn() const noexcept { return be32toh(cqe_.sop_drop_qpn) & 0xffffff; }
        bool has_immediate() const noexcept { return (cqe_.op_own & 0x10) != 0; }
        std::uint32_t immediate() const noexcept { return be32toh(cqe_.imm_inval_pkey); }

    private:
        const mlx5_cqe64& cqe_;
    };
    [[gnu::noinline]] Completion completion(const mlx5_cqe64& cqe) noexcept {
        Completion out;
        translate(cqe, out);
        return out;
    }

    // Asks for an event at the next entry (or the next solicited one) beyond what has been polled.
    // The caller has read the events of earlier arms, and called event_read() for each.
    void arm(bool solicited_only) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        publish();
        // The device may take an arm for a repeated one unless its number has gone on with the
        // events, and with nothing else (rdma-core providers/mlx5/cq.c: mlx5_cq_event).
        const std::uint32_t command =
            (events_ & 3) << 28 | (solicited_only ? 1u << 24 : 0) | (consumer_ & 0xffffff);
        store_record(record_ + 1, htobe32(command));
        const std::lock_guard<SpinLock> arming(arming_->lock);
        begin_register_stores();
        store_register(arming_->address, htobe64(std::uint64_t{command} << 32 | number_));
        end_register_stores();
        if (doorbell_hook_ != nullptr) doorbell_hook_(arming_->address);
    }

    // For each event of this CQ that ibv_get_cq_event() has returned, before the next arm().
    void event_read() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        ++events_;
    }

private:
    // RESP_SEND and RESP_SEND_IMM differ in the last bit.
    static constexpr unsigned kMessage = MLX5_CQE_RESP_SEND << 4, kKindOfInlined = 0xe0,
                              kKindOfMessage =
                                  kKindOfInlined | MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64;
    // The last of the last word, which is written as a whole, and last (PRM).
    static std::uint8_t owner_byte(const mlx5_cqe64& cqe) noexcept {
        return static_cast<std::uint8_t>(le32toh(load_word(&cqe.wqe_counter)) >> 24);
    }
    struct Reporter {
        std::uint32_t qpn = 0;
        SendQueue* send = nullptr;
        ReceiveQueue* receive = nullptr;
        SharedReceiveQueue* shared = nullptr;
    };

    Reporter& reporter(std::uint32_t qpn) {
        last_ = {};
        const auto at = std::lower_bound(reporters_.begin(), reporters_.end(), qpn, before);
        if (at != reporters_.end() && at->qpn == qpn) return *at;
        Reporter fresh;
        fresh.qpn = qpn;
        return *reporters_.insert(at, fresh);
    }
    const Reporter& reporter_of(std::uint32_t qpn) noexcept {
        if (last_.qpn == qpn) return last_;
        const auto at = std::lower_bound(reporters_.begin(), reporters_.end(), qpn, before);
        if (at == reporters_.end() || at->qpn != qpn) return nobody_;
        return last_ = *at;
    }
    static bool before(const Reporter& reporter, std::uint32_t qpn) noexcept {
        return reporter.qpn < qpn;
    }

    // Small answers and messages may come in the entry.
    static bool carries_payload(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)) != 0;
    }

    void sent(const mlx5_cqe64& cqe, Completion& out) noexcept {
        SendQueue* queue = reporter_of(out.qpn).send;
        if (queue == nullptr) return;
        const std::uint16_t counter = be16toh(cqe.wqe_counter);
        if (carries_payload(cqe) && out.status == IBV_WC_SUCCESS) [[unlikely]]
            queue->answered(counter, inlined_bytes(cqe), out.bytes);
        out.id = queue->completed(counter);
    }

    template <class Queue>
    void received(const mlx5_cqe64& cqe, Queue& queue, Completion& out) noexcept {
        const std::uint16_t counter = be16toh(cqe.wqe_counter);
        const Received entry = queue.completed(counter);
        out.id = entry.id;
        if (carries_payload(cqe) && out.status == IBV_WC_SUCCESS)
            scatter(entry.list, entry.room, inlined_bytes(cqe), be32toh(cqe.byte_cnt));
        queue.release(counter);
    }
    void received(const mlx5_cqe64& cqe, Completion& out) noexcept {
        const Reporter& reporter = reporter_of(out.qpn);
        if (reporter.receive != nullptr)
            received(cqe, *reporter.receive, out);
        else if (reporter.shared != nullptr)
            received(cqe, *reporter.shared, out);
    }

    void translate(const mlx5_cqe64& cqe, Completion& out) noexcept {
        out = {};
        const std::uint32_t word = be32toh(cqe.sop_drop_qpn);
        out.qpn = word & 0xffffff;
        switch (cqe.op_own >> 4) {
            case MLX5_CQE_REQ:
                switch (word >> 24) {
                    case MLX5_OPCODE_RDMA_WRITE:
                    case MLX5_OPCODE_RDMA_WRITE_IMM:
                        out.opcode = IBV_WC_RDMA_WRITE;
                        break;
                    case MLX5_OPCODE_RDMA_READ:
                        out.opcode = IBV_WC_RDMA_READ;
                        out.bytes = be32toh(cqe.byte_cnt);
                        break;
                    case MLX5_OPCODE_ATOMIC_CS:
                        out.opcode = IBV_WC_COMP_SWAP;
                        out.bytes = 8;
                        break;
                    case MLX5_OPCODE_ATOMIC_FA:
                        out.opcode = IBV_WC_FETCH_ADD;
                        out.bytes = 8;
                        break;
                    default:
                        out.opcode = IBV_WC_SEND;
                        break;
                }
                sent(cqe, out);
                break;
            case MLX5_CQE_RESP_WR_IMM:
            case MLX5_CQE_RESP_SEND_IMM:
                out.has_immediate = true;
                out.immediate = be32toh(cqe.imm_inval_pkey);
                [[fallthrough]];
            case MLX5_CQE_RESP_SEND:
                out.opcode = cqe.op_own >> 4 == MLX5_CQE_RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
                                                                     : IBV_WC_RECV;
                out.bytes = be32toh(cqe.byte_cnt);
                out.source_qpn = be32toh(cqe.flags_rqpn) & 0xffffff;
                received(cqe, out);
                break;
            case MLX5_CQE_REQ_ERR:
            case MLX5_CQE_RESP_ERR: {
                const auto& error = reinterpret_cast<const mlx5_err_cqe&>(cqe);
                out.status = status_of(error.syndrome);
                out.vendor_error = error.vendor_err_synd;
                if (cqe.op_own >> 4 == MLX5_CQE_REQ_ERR)
                    sent(cqe, out);
                else
                    received(cqe, out);
                break;
            }
            default:
                out.status = IBV_WC_GENERAL_ERR;
                break;
        }
    }

    Lock lock_;
    std::byte *begin_ = nullptr, *end_ = nullptr;
    std::uint32_t entry_bytes_ = 0, number_ = 0;
    __be32* record_ = nullptr;
    std::shared_ptr<Uuar> arming_;
    Doorbell doorbell_hook_ = doorbell_hook();
    EmptyPoll empty_hook_ = empty_poll_hook();
    // under lock_
    std::byte* at_ = nullptr;                  // the next entry
    std::uint8_t owner_ = 0;                   // the owner bit of this pass over the ring
    std::uint32_t consumer_ = 0, events_ = 0;  // free-running
    std::vector<Reporter> reporters_;          // by number
    Reporter nobody_;                          // what is known of all others
    Reporter last_;                            // under lock_: who reported last
};

}  // namespace heddle::post
