// SPDX-License-Identifier: BSD-2-Clause
// The verbs path: the same interface over ibv_post_send and ibv_poll_cq, for any device. libmlx5
// locks the QP, or does not, as the QP was made (a thread domain); nothing is locked here but the
// list under construction, by `Lock`.
#pragma once

#include <infiniband/verbs.h>

#include <endian.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <vector>

#include "heddle/post/lock.h"
#include "heddle/post/work.h"

namespace heddle::post {

template <class Lock>
class VerbsSendQueue {
public:
    static constexpr std::size_t kMaxPieces = 32;

    // list: how many works ring_doorbell() may be asked to post as one list.
    VerbsSendQueue(ibv_qp* qp, std::uint32_t list) : qp_(qp), list_(list == 0 ? 1 : list) {}

    std::uint32_t qpn() const noexcept { return qp_->qp_num; }

    Posted post(const Work& work) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (count_ == list_.size()) {
            const Posted flushed = flush();
            if (flushed != Posted::kOk) return flushed;
        }
        return append(work);
    }
    // kFull: the rest stays here, for the next call.
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return flush();
    }
    // Unless it is kOk the work is not taken.
    Posted post_now(const Work& work) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (const Posted flushed = flush(); flushed != Posted::kOk) return flushed;
        Posted posted = append(work);
        if (posted == Posted::kOk) posted = flush();
        if (posted != Posted::kOk) count_ = 0;
        return posted;
    }

private:
    struct Slot {
        ibv_send_wr wr;
        std::array<ibv_sge, kMaxPieces> pieces;
    };

    static ibv_wr_opcode opcode(Opcode opcode) noexcept {
        switch (opcode) {
            case Opcode::kSend:
                return IBV_WR_SEND;
            case Opcode::kSendImm:
                return IBV_WR_SEND_WITH_IMM;
            case Opcode::kWrite:
                return IBV_WR_RDMA_WRITE;
            case Opcode::kWriteImm:
                return IBV_WR_RDMA_WRITE_WITH_IMM;
            case Opcode::kRead:
                return IBV_WR_RDMA_READ;
            case Opcode::kCompareSwap:
                return IBV_WR_ATOMIC_CMP_AND_SWP;
            case Opcode::kFetchAdd:
                return IBV_WR_ATOMIC_FETCH_AND_ADD;
        }
        return IBV_WR_SEND;
    }

    Posted append(const Work& work) noexcept {
        if (work.pieces.size() > kMaxPieces) return Posted::kInvalid;
        Slot& slot = list_[count_];
        ibv_send_wr& wr = slot.wr;
        wr.wr_id = work.id;
        wr.next = nullptr;
        wr.num_sge = static_cast<int>(work.pieces.size());
        for (std::size_t i = 0; i < work.pieces.size(); ++i)
            slot.pieces[i] = work.pieces[i];
        wr.sg_list = slot.pieces.data();
        wr.opcode = opcode(work.opcode);
        const auto flag = [&](Flags ours, unsigned theirs) {
            return work.flags & ours ? theirs : 0u;
        };
        wr.send_flags = flag(kSignaled, IBV_SEND_SIGNALED) | flag(kSolicited, IBV_SEND_SOLICITED) |
                        flag(kInline, IBV_SEND_INLINE) | flag(kFence, IBV_SEND_FENCE);
        wr.imm_data = htobe32(work.immediate);
        if (work.opcode == Opcode::kCompareSwap || work.opcode == Opcode::kFetchAdd) {
            wr.wr.atomic.remote_addr = work.remote_address;
            wr.wr.atomic.rkey = work.remote_key;
            wr.wr.atomic.compare_add = work.compare_or_add;
            wr.wr.atomic.swap = work.swap;
        } else {
            wr.wr.rdma.remote_addr = work.remote_address;
            wr.wr.rdma.rkey = work.remote_key;
        }
        wr.qp_type.xrc.remote_srqn = work.remote_srq;
        if (count_ != 0) list_[count_ - 1].wr.next = &wr;
        ++count_;
        return Posted::kOk;
    }

    Posted flush() noexcept {
        if (count_ == 0) return Posted::kOk;
        ibv_send_wr* bad = nullptr;
        const int error = ibv_post_send(qp_, &list_[0].wr, &bad);
        if (error == 0) {
            count_ = 0;
            return Posted::kOk;
        }
        // What was not taken stays at the head of the list, for the next call.
        std::size_t kept = 0;
        for (std::size_t i = 0; i < count_; ++i)
            if (kept != 0 || &list_[i].wr == bad) {
                if (kept != i) {
                    list_[kept] = list_[i];
                    list_[kept].wr.sg_list = list_[kept].pieces.data();
                }
                if (kept != 0) list_[kept - 1].wr.next = &list_[kept].wr;
                ++kept;
            }
        count_ = kept;
        return error == ENOMEM ? Posted::kFull : Posted::kInvalid;
    }

    Lock lock_;
    ibv_qp* qp_;
    std::vector<Slot> list_;  // under lock_
    std::size_t count_ = 0;   // under lock_
};

class VerbsReceiveQueue {
public:
    explicit VerbsReceiveQueue(ibv_qp* qp) : qp_(qp) {}
    Posted post_now(std::span<const ibv_sge> pieces, std::uint64_t id) noexcept {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = const_cast<ibv_sge*>(pieces.data());
        wr.num_sge = static_cast<int>(pieces.size());
        const int error = ibv_post_recv(qp_, &wr, &bad);
        return error == 0 ? Posted::kOk : error == ENOMEM ? Posted::kFull : Posted::kInvalid;
    }

private:
    ibv_qp* qp_;
};

class VerbsCompletionQueue {
public:
    explicit VerbsCompletionQueue(ibv_cq* cq) : cq_(cq) {}

    unsigned poll(Completion* out, unsigned most) noexcept {
        std::array<ibv_wc, 32> wc;
        if (most > wc.size()) most = static_cast<unsigned>(wc.size());
        const int found = ibv_poll_cq(cq_, static_cast<int>(most), wc.data());
        for (int i = 0; i < found; ++i) {
            const ibv_wc& from = wc[static_cast<std::size_t>(i)];
            Completion& to = out[i];
            to = {};
            to.id = from.wr_id;
            to.status = from.status;
            to.vendor_error = from.vendor_err;
            to.qpn = from.qp_num;
            if (from.status != IBV_WC_SUCCESS) continue;
            to.opcode = from.opcode;
            to.bytes = from.byte_len;
            to.source_qpn = from.src_qp;
            to.has_immediate = (from.wc_flags & IBV_WC_WITH_IMM) != 0;
            if (to.has_immediate) to.immediate = be32toh(from.imm_data);
        }
        return found > 0 ? static_cast<unsigned>(found) : 0;
    }
    void arm(bool solicited_only) noexcept { ibv_req_notify_cq(cq_, solicited_only ? 1 : 0); }

private:
    ibv_cq* cq_;
};

}  // namespace heddle::post
