// SPDX-License-Identifier: BSD-2-Clause
// The direct path's completion queue: an entry is ours when its owner bit is that of this pass over
// the ring. PRM "Completion Queue Entry"; error entries "Completion with error".
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/error.h"
#include "post/lock.h"
#include "post/stores.h"
#include "post/work.h"

namespace heddle::post {

// IBTA 11.6.2 statuses for the device's syndromes.
ibv_wc_status status_of(std::uint8_t syndrome) noexcept;

// SendQueue has qpn() and completed(counter). Lock: as of the queues that report here.
template <class SendQueue, class Lock>
class Mlx5CompletionQueue {
public:
    explicit Mlx5CompletionQueue(ibv_cq* cq) {
        mlx5dv_cq out{};
        mlx5dv_obj object{};
        object.cq.in = cq;
        object.cq.out = &out;
        if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ))
            throw VerbsError("the direct path for a CQ", error,
                             "it needs an mlx5 device; use the verbs path");
        buffer_ = static_cast<std::byte*>(out.buf);
        entries_ = out.cqe_cnt;
        entry_bytes_ = out.cqe_size;
        record_ = out.dbrec;
        uar_ = static_cast<std::byte*>(out.cq_uar);
        number_ = out.cqn;
    }

    // Queues that report here; before the first poll.
    void add(SendQueue& queue) { queues_.push_back(&queue); }

    // Up to `most` completions. Receives give the id `receive_id(qpn, counter)`.
    template <class ReceiveId>
    unsigned poll(Completion* out, unsigned most, ReceiveId&& receive_id) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        unsigned found = 0;
        while (found < most) {
            const mlx5_cqe64* cqe = next();
            if (cqe == nullptr) break;
            order_device_loads();
            ++consumer_;
            translate(*cqe, out[found++], receive_id);
        }
        if (found != 0) store_record(record_, htobe32(consumer_ & 0xffffff));
        return found;
    }
    unsigned poll(Completion* out, unsigned most) noexcept {
        return poll(out, most, [](std::uint32_t, std::uint16_t) { return std::uint64_t{0}; });
    }

    // Asks for an event at the next entry (or the next solicited one) beyond what has been polled.
    void arm(bool solicited_only) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        const std::uint32_t command =
            (arms_ & 3) << 28 | (solicited_only ? 1u << 24 : 0) | (consumer_ & 0xffffff);
        ++arms_;
        store_record(record_ + 1, htobe32(command));
        begin_register_stores();
        store_register(uar_ + 0x20,  // MLX5_CQ_DOORBELL
                       htobe64(std::uint64_t{command} << 32 | number_));
        end_register_stores();
    }

private:
    const mlx5_cqe64* next() const noexcept {
        const std::byte* at =
            buffer_ + std::size_t{consumer_ & (entries_ - 1)} * entry_bytes_ + (entry_bytes_ - 64);
        const auto* cqe = reinterpret_cast<const mlx5_cqe64*>(at);
        // The last word, of which the owner bit is the last byte (PRM: it is written last).
        const auto own = static_cast<std::uint8_t>(le32toh(load_word(&cqe->wqe_counter)) >> 24);
        const bool ours = (own & MLX5_CQE_OWNER_MASK) == ((consumer_ & entries_) != 0 ? 1 : 0) &&
                          own >> 4 != MLX5_CQE_INVALID;
        return ours ? cqe : nullptr;
    }

    SendQueue* queue_of(std::uint32_t qpn) const noexcept {
        for (SendQueue* queue : queues_)
            if (queue->qpn() == qpn) return queue;
        return nullptr;
    }

    template <class ReceiveId>
    void translate(const mlx5_cqe64& cqe, Completion& out, ReceiveId& receive_id) noexcept {
        out = {};
        const std::uint32_t word = be32toh(cqe.sop_drop_qpn);
        out.qpn = word & 0xffffff;
        const std::uint16_t counter = be16toh(cqe.wqe_counter);
        switch (cqe.op_own >> 4) {
            case MLX5_CQE_REQ:
                out.id = send_id(out.qpn, counter);
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
                out.id = receive_id(out.qpn, counter);
                break;
            case MLX5_CQE_REQ_ERR:
            case MLX5_CQE_RESP_ERR: {
                const auto& error = reinterpret_cast<const mlx5_err_cqe&>(cqe);
                out.status = status_of(error.syndrome);
                out.vendor_error = error.vendor_err_synd;
                out.id = cqe.op_own >> 4 == MLX5_CQE_REQ_ERR ? send_id(out.qpn, counter)
                                                             : receive_id(out.qpn, counter);
                break;
            }
            default:
                out.status = IBV_WC_GENERAL_ERR;
                break;
        }
    }

    std::uint64_t send_id(std::uint32_t qpn, std::uint16_t counter) noexcept {
        SendQueue* queue = queue_of(qpn);
        return queue != nullptr ? queue->completed(counter) : 0;
    }

    Lock lock_;
    std::byte* buffer_ = nullptr;
    std::uint32_t entries_ = 0, entry_bytes_ = 0, number_ = 0;
    __be32* record_ = nullptr;
    std::byte* uar_ = nullptr;
    std::uint32_t consumer_ = 0, arms_ = 0;  // under lock_
    std::vector<SendQueue*> queues_;         // constant once polling has begun
};

}  // namespace heddle::post
