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
#include <span>
#include <vector>

#include "heddle/post/lock.h"
#include "heddle/post/work_request.h"

namespace heddle::post {

inline int post_list(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    return ibv_post_send(qp, first, bad);
}
inline int post_list(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ibv_post_srq_recv(srq, first, bad);
}

// Requests that are posted together, as one list. Object and Request: ibv_qp and ibv_send_wr, or
// ibv_srq and ibv_recv_wr.
template <class Lock, class Object, class Request>
class VerbsList {
public:
    static constexpr std::size_t kMaxSges = 32;

    VerbsList(Object* object, std::uint32_t length)
        : object_(object), list_(length == 0 ? 1 : length) {}

    Object* object() const noexcept { return object_; }

    // `fill` sets what a request has besides its id and its sges.
    template <class Fill>
    Posted post(std::span<const ibv_sge> sges, std::uint64_t id, const Fill& fill) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (count_ == list_.size()) {
            const Posted flushed = flush();
            if (flushed != Posted::kOk) return flushed;
        }
        return append(sges, id, fill);
    }
    Posted ring_doorbell() noexcept {
        const std::lock_guard<Lock> guard(lock_);
        return flush();
    }
    template <class Fill>
    Posted post_now(std::span<const ibv_sge> sges, std::uint64_t id, const Fill& fill) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (const Posted flushed = flush(); flushed != Posted::kOk) return flushed;
        Posted posted = append(sges, id, fill);
        if (posted == Posted::kOk) posted = flush();
        if (posted != Posted::kOk) count_ = 0;
        return posted;
    }

private:
    struct Slot {
        Request wr;
        std::array<ibv_sge, kMaxSges> sges;
    };

    template <class Fill>
    Posted append(std::span<const ibv_sge> sges, std::uint64_t id, const Fill& fill) noexcept {
        if (sges.size() > kMaxSges) return Posted::kInvalid;
        Slot& slot = list_[count_];
        Request& wr = slot.wr;
        wr.wr_id = id;
        wr.next = nullptr;
        wr.num_sge = static_cast<int>(sges.size());
        for (std::size_t i = 0; i < sges.size(); ++i)
            slot.sges[i] = sges[i];
        wr.sg_list = slot.sges.data();
        fill(wr);
        if (count_ != 0) list_[count_ - 1].wr.next = &wr;
        ++count_;
        return Posted::kOk;
    }

    Posted flush() noexcept {
        if (count_ == 0) return Posted::kOk;
        Request* bad = nullptr;
        const int error = post_list(object_, &list_[0].wr, &bad);
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
                    list_[kept].wr.sg_list = list_[kept].sges.data();
                }
                if (kept != 0) list_[kept - 1].wr.next = &list_[kept].wr;
                ++kept;
            }
        count_ = kept;
        return error == ENOMEM ? Posted::kFull : Posted::kInvalid;
    }

    Lock lock_;
    Object* object_;
    std::vector<Slot> list_;  // under lock_
    std::size_t count_ = 0;   // under lock_
};

template <class Lock>
class VerbsSendQueue {
public:
    static constexpr std::size_t kMaxSges = VerbsList<Lock, ibv_qp, ibv_send_wr>::kMaxSges;

    // list: how many works ring_doorbell() may be asked to post as one list.
    VerbsSendQueue(ibv_qp* qp, std::uint32_t list) : list_(qp, list) {}

    std::uint32_t qpn() const noexcept { return list_.object()->qp_num; }

    Posted post(const WorkRequest& work) noexcept {
        return list_.post(work.sges, work.id, [&](ibv_send_wr& wr) { fill(wr, work); });
    }
    // kFull: the rest stays here, for the next call.
    Posted ring_doorbell() noexcept { return list_.ring_doorbell(); }
    // Unless it is kOk the work is not taken.
    Posted post_now(const WorkRequest& work) noexcept {
        return list_.post_now(work.sges, work.id, [&](ibv_send_wr& wr) { fill(wr, work); });
    }

private:
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

    static void fill(ibv_send_wr& wr, const WorkRequest& work) noexcept {
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
    }

    VerbsList<Lock, ibv_qp, ibv_send_wr> list_;
};

class VerbsReceiveQueue {
public:
    explicit VerbsReceiveQueue(ibv_qp* qp) : qp_(qp) {}
    Posted post_now(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = id;
        wr.sg_list = const_cast<ibv_sge*>(sges.data());
        wr.num_sge = static_cast<int>(sges.size());
        const int error = ibv_post_recv(qp_, &wr, &bad);
        return error == 0 ? Posted::kOk : error == ENOMEM ? Posted::kFull : Posted::kInvalid;
    }

private:
    ibv_qp* qp_;
};

// Fed and emptied by any number of QPs.
template <class Lock>
class VerbsSharedReceiveQueue {
public:
    // list: how many receives ring_doorbell() may be asked to post as one list.
    VerbsSharedReceiveQueue(ibv_srq* srq, std::uint32_t list) : list_(srq, list) {}

    // By which XRC senders name it; 0: it has none.
    std::uint32_t number() const noexcept {
        std::uint32_t number = 0;
        return ibv_get_srq_num(list_.object(), &number) == 0 ? number : 0;
    }

    Posted post(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        return list_.post(sges, id, [](ibv_recv_wr&) {});
    }
    // kFull: the rest stays here, for the next call.
    Posted ring_doorbell() noexcept { return list_.ring_doorbell(); }
    // Unless it is kOk the receive is not taken.
    Posted post_now(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        return list_.post_now(sges, id, [](ibv_recv_wr&) {});
    }

private:
    VerbsList<Lock, ibv_srq, ibv_recv_wr> list_;
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
    // The driver counts events by itself, in ibv_get_cq_event().
    void event_read() noexcept {}

private:
    ibv_cq* cq_;
};

}  // namespace heddle::post
