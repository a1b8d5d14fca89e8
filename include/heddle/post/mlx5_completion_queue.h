// SPDX-License-Identifier: BSD-2-Clause
// The direct path's completion queue. A CQE belongs to software when its owner bit equals that of
// this pass over the ring. PRM "Completion Queue Entry"; for errors "Completion with error".
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/post/lock.h"
#include "heddle/post/mlx5_objects.h"
#include "heddle/post/mlx5_receive_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/softhca_hooks.h"
#include "heddle/post/stores.h"
#include "heddle/post/uuar.h"
#include "heddle/post/work_request.h"

namespace heddle::post {

namespace detail {

// Returns the status (IBTA 11.6.2) for a device's syndrome. Any thread.
ibv_wc_status status_of(std::uint8_t syndrome) noexcept;

}  // namespace detail

/// An mlx5 completion queue, read without libmlx5.
///
///     heddle::post::Mlx5CompletionQueue<heddle::post::SingleThreaded> completions(cq);
///     completions.add(send_queue);
///     completions.add(receive_queue);
///     heddle::post::Completion done[16];
///     const unsigned found = completions.poll(done, 16);
///
/// As soon as it exists, the program must not poll or arm the CQ by libibverbs. The CQ and the
/// queues that were added must outlive it. `Lock` is the lock of those queues, too.
///
/// Thread safety: with SingleThreaded one thread at a time polls and arms, with SpinLock any thread
/// does. The functions from first() to completion() take no lock: one thread at a time calls them,
/// and no other thread polls.
template <class Lock>
class Mlx5CompletionQueue {
public:
    using SendQueue = Mlx5SendQueue<Lock>;
    using ReceiveQueue = Mlx5ReceiveQueue<Lock>;
    using SharedReceiveQueue = Mlx5SharedReceiveQueue<Lock>;

    /// Reads the layout of the CQ.
    /// @param cq it has no completions yet
    /// @throw VerbsError the device is not an mlx5
    explicit Mlx5CompletionQueue(ibv_cq* cq) {
        const mlx5dv_cq out = detail::layout_of(cq);
        entry_bytes_ = out.cqe_size;
        HEDDLE_ASSERT(entry_bytes_ == 64 || entry_bytes_ == 128, "PRM: a CQE of 64 or 128 bytes");
        HEDDLE_ASSERT(std::has_single_bit(out.cqe_cnt), "the owner bit changes at 2^n CQEs");
        // A CQE of 128 bytes has its fields in the second half.
        begin_ = at_ = static_cast<std::byte*>(out.buf) + (entry_bytes_ - sizeof(mlx5_cqe64));
        end_ = begin_ + std::size_t{out.cqe_cnt} * entry_bytes_;
        record_ = out.dbrec;
        // All CQs of a context share this register, and their threads do not know of each other.
        arming_ = detail::uuar_at(static_cast<std::byte*>(out.cq_uar) + 0x20, 0,
                                  true);  // MLX5_CQ_DOORBELL
        number_ = out.cqn;
    }

    /// Adds a queue whose completions arrive here, before its first one. No thread polls meanwhile.
    /// @param queue it must outlive this object
    void add(SendQueue& queue) { reporter(queue.qpn()).send = &queue; }
    /// Removes a send queue of which no request is under way. No thread polls meanwhile.
    void remove(const SendQueue& queue) noexcept {
        last_ = {};
        std::erase_if(reporters_, [&](Reporter& each) {
            if (each.send == &queue) each.send = nullptr;
            return each.send == nullptr && each.receive == nullptr && each.shared == nullptr;
        });
    }
    /// Adds a receive queue, as above.
    void add(ReceiveQueue& queue) { reporter(queue.qpn()).receive = &queue; }
    /// Adds a QP that takes its receives from a shared receive queue, as above.
    /// @param queue it must outlive this object
    /// @param qpn the QP's number; with XRC that of the target QP
    void add(SharedReceiveQueue& queue, std::uint32_t qpn) { reporter(qpn).shared = &queue; }
    /// Makes all QPs that were not added take their receives from `queue`. Other threads may then
    /// create XRC targets while this queue is polled, without telling their numbers here.
    void add_default(SharedReceiveQueue& queue) noexcept {
        default_.shared = &queue;
        last_ = {};
    }

    /// Takes completions. Never waits.
    /// @param out room for `most` completions
    /// @param most the largest number to take
    /// @return how many were written; the id of a request whose queue was not added is 0
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

    /// Returns the next CQE, or nullptr; as next(), and tells softhca of an empty queue.
    ///
    /// From here to completion(): polling CQE by CQE, for a thread that handles plain messages in
    /// place. A plain message is a SEND into the memory of an SRQ's WQE, or into the CQE itself.
    /// The order of calls: first() for the first CQE and next() for further ones; pop();
    /// is_message() or is_inlined_message(), and Message, or completion(); publish() at the end.
    const mlx5_cqe64* first() noexcept {
        const mlx5_cqe64* const cqe = next();
        if (cqe != nullptr) [[likely]]
            return cqe;
        return empty_hook_ != nullptr && empty_hook_() ? next() : nullptr;
    }
    /// Returns the next CQE, or nullptr if the device has not written it.
    const mlx5_cqe64* next() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & MLX5_CQE_OWNER_MASK) != 0 || own >> 4 == MLX5_CQE_INVALID)
            return nullptr;
        detail::order_device_loads();
        return &front();
    }
    /// Returns whether next() is a plain message; then front() is it. For callers that leave all
    /// other cases, an empty queue among them, to first().
    bool has_message() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & (kKindOfMessage | MLX5_CQE_OWNER_MASK)) != kMessage) return false;
        detail::order_device_loads();
        return true;
    }
    /// Returns whether the next CQE is a message whose bytes are in the CQE (PRM, scatter to CQE).
    /// Called after has_message() returned false.
    bool has_inlined_message() const noexcept {
        const std::uint8_t own = owner_byte(front());
        if (((own ^ owner_) & (kKindOfInlined | MLX5_CQE_OWNER_MASK)) != kMessage) return false;
        detail::order_device_loads();
        return true;
    }
    /// Returns the memory of the next CQE, whether the device has written it or not.
    const mlx5_cqe64& front() const noexcept { return *reinterpret_cast<const mlx5_cqe64*>(at_); }
    /// Passes the next CQE, which next() or has_message() has found.
    void pop() noexcept {
        HEDDLE_DEBUG_ASSERT(((owner_byte(front()) ^ owner_) & MLX5_CQE_OWNER_MASK) == 0,
                            "popped a CQE that the device owns");
        ++consumer_;
        at_ += entry_bytes_;
        if (at_ == end_) [[unlikely]] {
            at_ = begin_;
            owner_ ^= 1;
        }
    }
    /// Returns whether the device has written the CQE that is `count` behind front().
    /// @param count less than the CQ has entries
    bool has_entry_ahead(std::uint32_t count) const noexcept {
        HEDDLE_DEBUG_ASSERT(std::size_t{count} * entry_bytes_ <
                            static_cast<std::size_t>(end_ - begin_));
        const std::byte* at = at_ + std::size_t{count} * entry_bytes_;
        const bool wraps = at >= end_;
        if (wraps) at -= end_ - begin_;
        const std::uint8_t own = owner_byte(*reinterpret_cast<const mlx5_cqe64*>(at));
        return ((own ^ owner_ ^ (wraps ? 1 : 0)) & MLX5_CQE_OWNER_MASK) == 0 &&
               own >> 4 != MLX5_CQE_INVALID;
    }
    /// Returns the number of CQEs popped, free-running.
    std::uint32_t consumer() const noexcept { return consumer_; }
    /// Returns all popped CQEs to the device.
    void publish() noexcept {
        detail::store_record(record_, htobe32(consumer_ & 0xffffff));
        if (polled_hook_ != nullptr) [[unlikely]]
            report_polled();
    }

    /// Returns whether a CQE is a plain message.
    static bool is_message(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & kKindOfMessage) == kMessage;
    }
    /// Returns whether a CQE is a message whose bytes are in it, at inlined_bytes(). Called after
    /// is_message() returned false.
    static bool is_inlined_message(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & kKindOfInlined) == kMessage;
    }
    /// Returns where the bytes of an inlined message are: in the first half of the CQE, or in the
    /// 64 bytes before a CQE of 128. Valid until publish().
    static const std::byte* inlined_bytes(const mlx5_cqe64& cqe) noexcept {
        const auto* begin = reinterpret_cast<const std::byte*>(&cqe);
        return cqe.op_own & MLX5_INLINE_SCATTER_32 ? begin : begin - sizeof cqe;
    }
    /// The fields of a plain message's CQE. Valid until publish().
    class Message {
    public:
        explicit Message(const mlx5_cqe64& cqe) noexcept : cqe_(cqe) {}
        std::uint16_t entry() const noexcept { return be16toh(cqe_.wqe_counter); }  // for release()
        std::uint32_t bytes() const noexcept { return be32toh(cqe_.byte_cnt); }
        std::uint32_t qpn() const noexcept { return be32toh(cqe_.sop_drop_qpn) & 0xffffff; }
        bool has_immediate() const noexcept { return (cqe_.op_own & 0x10) != 0; }
        std::uint32_t immediate() const noexcept { return be32toh(cqe_.imm_inval_pkey); }

    private:
        const mlx5_cqe64& cqe_;
    };
    /// Translates any CQE and completes its request.
    [[gnu::noinline]] Completion completion(const mlx5_cqe64& cqe) noexcept {
        Completion out;
        translate(cqe, out);
        return out;
    }

    /// Completes the request of a CQE that says only that it is done: without an error, and without
    /// a result in the CQE. What most are; completion() asks for all that others have.
    /// @param id of the request
    /// @return false: nothing was done, and the caller calls completion()
    [[gnu::always_inline]] bool is_done(const mlx5_cqe64& cqe, std::uint64_t& id) noexcept {
        constexpr unsigned kKind = 0xf0 | MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64;
        if ((cqe.op_own & kKind) != MLX5_CQE_REQ << 4) return false;
        SendQueue* const queue = reporter_of(be32toh(cqe.sop_drop_qpn) & 0xffffff).send;
        if (queue == nullptr) return false;
        id = queue->completed(be16toh(cqe.wqe_counter));
        return true;
    }

    /// Requests an event for the next CQE that has not been polled. The caller has read the events
    /// of earlier calls and called event_read() for each.
    /// @param solicited_only only a solicited CQE or an error raises the event
    void arm(bool solicited_only) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        publish();
        // The arm number must advance with the events and with nothing else. Otherwise the device
        // may take an arm for a repetition (rdma-core providers/mlx5/cq.c: mlx5_cq_event).
        const std::uint32_t command =
            (events_ & 3) << 28 | (solicited_only ? 1u << 24 : 0) | (consumer_ & 0xffffff);
        detail::store_record(record_ + 1, htobe32(command));
        const std::lock_guard<SpinLock> arming(arming_->lock);
        detail::begin_register_stores();
        detail::store_register(arming_->address, htobe64(std::uint64_t{command} << 32 | number_));
        detail::end_register_stores();
        if (doorbell_hook_ != nullptr) doorbell_hook_(arming_->address);
    }

    /// Counts an event of this CQ that ibv_get_cq_event() returned. Called once for each, before
    /// the next arm().
    void event_read() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        ++events_;
    }

private:
    [[gnu::cold, gnu::noinline]] void report_polled() noexcept {
        if (consumer_ != reported_) polled_hook_(number_, consumer_ - reported_);
        reported_ = consumer_;
    }

    // The opcodes RESP_SEND and RESP_SEND_IMM differ in the last bit only.
    static constexpr unsigned kMessage = MLX5_CQE_RESP_SEND << 4, kKindOfInlined = 0xe0,
                              kKindOfMessage =
                                  kKindOfInlined | MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64;
    // The last byte of the last word. The device writes that word at once, and last (PRM).
    static std::uint8_t owner_byte(const mlx5_cqe64& cqe) noexcept {
        return static_cast<std::uint8_t>(le32toh(detail::load_word(&cqe.wqe_counter)) >> 24);
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
        if (at == reporters_.end() || at->qpn != qpn) return default_;
        return last_ = *at;
    }
    static bool before(const Reporter& reporter, std::uint32_t qpn) noexcept {
        return reporter.qpn < qpn;
    }

    // Small results and messages may be in the CQE itself: in its first half, or in the first 64
    // bytes of a CQE of 128 (PRM, scatter to CQE).
    static bool has_inline_payload(const mlx5_cqe64& cqe) noexcept {
        return (cqe.op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)) != 0;
    }

    void sent(const mlx5_cqe64& cqe, Completion& out) noexcept {
        SendQueue* queue = reporter_of(out.qpn).send;
        if (queue == nullptr) return;
        HEDDLE_DEBUG_ASSERT(queue->qpn() == out.qpn);
        const std::uint16_t counter = be16toh(cqe.wqe_counter);
        if (has_inline_payload(cqe) && out.status == IBV_WC_SUCCESS) [[unlikely]]
            queue->answered(counter, inlined_bytes(cqe), out.bytes);
        out.id = queue->completed(counter);
    }

    template <class Queue>
    void received(const mlx5_cqe64& cqe, Queue& queue, Completion& out) noexcept {
        const std::uint16_t counter = be16toh(cqe.wqe_counter);
        const detail::Received entry = queue.completed(counter);
        out.id = entry.id;
        if (has_inline_payload(cqe) && out.status == IBV_WC_SUCCESS)
            detail::scatter(entry.list, entry.room, inlined_bytes(cqe), be32toh(cqe.byte_cnt));
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
                out.status = detail::status_of(error.syndrome);
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
    std::shared_ptr<detail::Uuar> arming_;
    detail::Doorbell doorbell_hook_ = detail::doorbell_hook();
    detail::EmptyPoll empty_hook_ = detail::empty_poll_hook();
    detail::Polled polled_hook_ = detail::polled_hook();
    // The lock guards everything below.
    std::byte* at_ = nullptr;                  // the next CQE
    std::uint8_t owner_ = 0;                   // the owner bit of this pass over the ring
    std::uint32_t consumer_ = 0, events_ = 0;  // free-running
    std::uint32_t reported_ = 0;               // consumer_ at the last call of polled_hook_
    std::vector<Reporter> reporters_;          // sorted by QP number
    Reporter default_;                         // for QPs that were not added
    Reporter last_;                            // the QP of the latest completion
};

}  // namespace heddle::post
