// SPDX-License-Identifier: BSD-2-Clause
// The verbs path: the same interface over ibv_post_send(3) and ibv_poll_cq(3), for any device. The
// driver locks a QP unless it is in a thread domain. `Lock` guards only the list under
// construction.
#pragma once

#include <infiniband/verbs.h>

#include <endian.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/post/lock.h"
#include "heddle/post/work_request.h"

namespace heddle::post {
namespace detail {

inline int post_list(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    return ibv_post_send(qp, first, bad);
}
inline int post_list(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ibv_post_srq_recv(srq, first, bad);
}
// The bits of enum ibv_send_flags that say the same.
inline unsigned send_flags(unsigned flags) noexcept {
    const auto flag = [&](Flags ours, unsigned theirs) { return flags & ours ? theirs : 0u; };
    return flag(kSignaled, IBV_SEND_SIGNALED) | flag(kSolicited, IBV_SEND_SOLICITED) |
           flag(kInline, IBV_SEND_INLINE) | flag(kFence, IBV_SEND_FENCE);
}

// Requests that are posted together, as one list. Object and Request are ibv_qp and ibv_send_wr, or
// ibv_srq and ibv_recv_wr.
template <class Lock, class Object, class Request>
class VerbsList {
public:
    static constexpr std::size_t kMaxSges = 32;

    VerbsList(Object* object, std::uint32_t length)
        : object_(object), length_(length == 0 ? 1 : length) {
        HEDDLE_ASSERT(object != nullptr);
    }

    Object* object() const noexcept { return object_; }

    // `fill(request)` sets everything but the id and the SGEs.
    template <class Fill>
    Posted post(std::span<const ibv_sge> sges, std::uint64_t id, const Fill& fill) noexcept {
        const std::lock_guard<Lock> guard(lock_);
        if (count_ == list_.size()) {
            const Posted made = make_room();
            if (made != Posted::kOk) return made;
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
        if (sges.size() > kMaxSges) return Posted::kInvalid;
        Request request, *bad = nullptr;
        set(request, id, sges.data(), sges.size(), fill);
        return result_of(post_list(object_, &request, &bad));
    }

private:
    struct Slot {
        Request wr;
        std::array<ibv_sge, kMaxSges> sges;
    };

    static Posted result_of(int error) noexcept {
        return error == 0 ? Posted::kOk : error == ENOMEM ? Posted::kFull : Posted::kInvalid;
    }

    // The driver only reads the SGEs.
    template <class Fill>
    static void set(Request& request, std::uint64_t id, const ibv_sge* sges, std::size_t count,
                    const Fill& fill) noexcept {
        request.wr_id = id;
        request.next = nullptr;
        request.sg_list = const_cast<ibv_sge*>(sges);
        request.num_sge = static_cast<int>(count);
        fill(request);
    }

    // The list takes its memory here, as many queues only use post_now().
    [[gnu::noinline]] Posted make_room() noexcept {
        if (count_ != 0) return flush();
        try {
            list_.resize(length_);
        } catch (const std::bad_alloc&) {
            return Posted::kFull;
        }
        return Posted::kOk;
    }

    template <class Fill>
    Posted append(std::span<const ibv_sge> sges, std::uint64_t id, const Fill& fill) noexcept {
        if (sges.size() > kMaxSges) return Posted::kInvalid;
        HEDDLE_DEBUG_ASSERT(count_ < list_.size(), "a full list is flushed before");
        Slot& slot = list_[count_];
        for (std::size_t i = 0; i < sges.size(); ++i)
            slot.sges[i] = sges[i];
        set(slot.wr, id, slot.sges.data(), sges.size(), fill);
        if (count_ != 0) list_[count_ - 1].wr.next = &slot.wr;
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
        // The requests from `bad` on stay at the head of the list, for the next call.
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
        HEDDLE_DEBUG_ASSERT(kept <= list_.size());
        count_ = kept;
        return result_of(error);
    }

    Lock lock_;
    Object* object_;
    const std::uint32_t length_;
    // lock_ guards both.
    std::vector<Slot> list_;  // empty until the first post()
    std::size_t count_ = 0;
};

}  // namespace detail

/// A send queue by libibverbs, on any device.
///
///     heddle::post::VerbsSendQueue<heddle::post::SingleThreaded> queue(qp, 16);
///     queue.post(first);
///     queue.post(second);
///     queue.ring_doorbell();
///
/// The QP must outlive it. Thread safety: with SingleThreaded one thread at a time; with SpinLock
/// any thread, if the driver locks the QP.
template <class Lock>
class VerbsSendQueue {
public:
    /// The most SGEs of a request.
    static constexpr std::size_t kMaxSges = detail::VerbsList<Lock, ibv_qp, ibv_send_wr>::kMaxSges;

    /// @param qp in any state
    /// @param list the most requests that ring_doorbell() posts as one list; 0 counts as 1
    VerbsSendQueue(ibv_qp* qp, std::uint32_t list) : list_(qp, list) {}

    /// Returns the QP's number. Any thread.
    std::uint32_t qpn() const noexcept { return list_.object()->qp_num; }

    /// Adds a request to the list. A full list is posted first.
    /// @return kOk; kFull: the send queue has no room; kInvalid: too many SGEs, or the driver
    ///     refused an earlier request of the list
    Posted post(const WorkRequest& request) noexcept {
        return list_.post(request.sges, request.id, [&](ibv_send_wr& wr) { fill(wr, request); });
    }
    /// Posts the list.
    /// @return kOk; kFull: the requests that found no room stay in the list, for the next call;
    ///     kInvalid: the driver refused a request, which stays first in the list
    Posted ring_doorbell() noexcept { return list_.ring_doorbell(); }
    /// Posts the list and this request.
    /// @return kOk; with any other result the queue has not taken this request
    Posted post_now(const WorkRequest& request) noexcept {
        return list_.post_now(request.sges, request.id,
                              [&](ibv_send_wr& wr) { fill(wr, request); });
    }

private:
    static ibv_wr_opcode opcode(Opcode opcode) noexcept {
        switch (opcode) {
            case Opcode::kSend:
                return IBV_WR_SEND;
            case Opcode::kSendImm:
                return IBV_WR_SEND_WITH_IMM;
            case Opcode::kWrite:
            case Opcode::kNop:
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

    static void fill(ibv_send_wr& wr, const WorkRequest& request) noexcept {
        wr.opcode = opcode(request.opcode);
        wr.send_flags = detail::send_flags(request.flags);
        wr.imm_data = htobe32(request.immediate);
        if (request.opcode == Opcode::kCompareSwap || request.opcode == Opcode::kFetchAdd) {
            wr.wr.atomic.remote_addr = request.remote_address;
            wr.wr.atomic.rkey = request.remote_key;
            wr.wr.atomic.compare_add = request.compare_or_add;
            wr.wr.atomic.swap = request.swap;
        } else {
            wr.wr.rdma.remote_addr = request.remote_address;
            wr.wr.rdma.rkey = request.remote_key;
        }
        wr.qp_type.xrc.remote_srqn = request.remote_srq;
    }

    detail::VerbsList<Lock, ibv_qp, ibv_send_wr> list_;
};

/// The receive queue of a QP by libibverbs, on any device.
///
///     heddle::post::VerbsReceiveQueue receives(qp);
///     receives.post_now({&sge, 1}, 7);
///
/// The QP must outlive it. Thread safety: that of ibv_post_recv(3) on this QP.
class VerbsReceiveQueue {
public:
    /// @param qp it has a receive queue
    explicit VerbsReceiveQueue(ibv_qp* qp) : qp_(qp) { HEDDLE_ASSERT(qp != nullptr); }
    /// Posts a receive.
    /// @param sges registered memory, which must stay until the receive completes
    /// @param id any value; the completion has it
    /// @return kOk; kFull: the receive queue has no room; kInvalid: the driver refused it
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

/// A shared receive queue by libibverbs, on any device. Any number of QPs take receives from it.
///
///     heddle::post::VerbsSharedReceiveQueue<heddle::post::SpinLock> receives(srq, 16);
///     receives.post({&sge, 1}, 7);
///     receives.ring_doorbell();
///
/// The SRQ must outlive it. Thread safety: with SingleThreaded one thread at a time, with SpinLock
/// any.
template <class Lock>
class VerbsSharedReceiveQueue {
public:
    /// @param srq it must outlive this object
    /// @param list the most receives that ring_doorbell() posts as one list; 0 counts as 1
    VerbsSharedReceiveQueue(ibv_srq* srq, std::uint32_t list) : list_(srq, list) {}

    /// Returns the SRQ's number, by which XRC senders address it; 0: it has none. Any thread.
    std::uint32_t number() const noexcept {
        std::uint32_t number = 0;
        return ibv_get_srq_num(list_.object(), &number) == 0 ? number : 0;
    }

    /// Adds a receive to the list. A full list is posted first.
    /// @return as VerbsSendQueue::post()
    Posted post(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        return list_.post(sges, id, [](ibv_recv_wr&) {});
    }
    /// Posts the list.
    /// @return as VerbsSendQueue::ring_doorbell()
    Posted ring_doorbell() noexcept { return list_.ring_doorbell(); }
    /// Posts the list and this receive.
    /// @return kOk; with any other result the queue has not taken this receive
    Posted post_now(std::span<const ibv_sge> sges, std::uint64_t id) noexcept {
        return list_.post_now(sges, id, [](ibv_recv_wr&) {});
    }

private:
    detail::VerbsList<Lock, ibv_srq, ibv_recv_wr> list_;
};

/// A completion queue by libibverbs, on any device.
///
///     heddle::post::VerbsCompletionQueue completions(cq);
///     heddle::post::Completion done[16];
///     const unsigned found = completions.poll(done, 16);
///
/// The CQ must outlive it. Thread safety: that of ibv_poll_cq(3) on this CQ, or for an extended CQ
/// that of ibv_start_poll(3).
class VerbsCompletionQueue {
public:
    /// @param cq any CQ
    explicit VerbsCompletionQueue(ibv_cq* cq) : cq_(cq) { HEDDLE_ASSERT(cq != nullptr); }
    /// Polls by ibv_start_poll(3). libmlx5 takes no lock there if the CQ was created with
    /// IBV_CREATE_CQ_ATTR_SINGLE_THREADED; its ibv_poll_cq(3) always takes one (rdma-core
    /// providers/mlx5/cq.c, mlx5_cq_fill_pfns() and poll_cq()).
    /// @param cq created with IBV_WC_STANDARD_FLAGS
    explicit VerbsCompletionQueue(ibv_cq_ex* cq) : cq_(ibv_cq_ex_to_cq(cq)), extended_(cq) {}

    /// Takes completions, at most 128 a call. Never waits.
    /// @param out room for `most` completions
    /// @param most the largest number to take
    /// @return how many were written to `out`; 0 also if the driver reports an error
    unsigned poll(Completion* out, unsigned most) noexcept {
        if (extended_ != nullptr) return poll_extended(out, most);
        std::array<ibv_wc, 128> wc;
        if (most > wc.size()) most = static_cast<unsigned>(wc.size());
        const int found = ibv_poll_cq(cq_, static_cast<int>(most), wc.data());
        HEDDLE_DEBUG_ASSERT(found <= static_cast<int>(most), "the driver wrote behind the array");
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
    /// Requests an event for the next completion (ibv_req_notify_cq(3)).
    /// @param solicited_only only a solicited completion or an error raises the event
    void arm(bool solicited_only) noexcept { ibv_req_notify_cq(cq_, solicited_only ? 1 : 0); }
    /// Does nothing: the driver counts events itself, in ibv_get_cq_event(3).
    void event_read() noexcept {}

private:
    unsigned poll_extended(Completion* out, unsigned most) noexcept {
        ibv_poll_cq_attr nothing{};
        if (most == 0 || ibv_start_poll(extended_, &nothing) != 0) return 0;
        unsigned found = 0;
        do {
            read_entry(out[found++]);
        } while (found < most && ibv_next_poll(extended_) == 0);
        ibv_end_poll(extended_);
        return found;
    }
    // Each read is a call of the driver's, so only what the opcode has is read.
    void read_entry(Completion& to) const noexcept {
        to = {};
        to.id = extended_->wr_id;
        to.status = extended_->status;
        to.qpn = ibv_wc_read_qp_num(extended_);
        if (to.status != IBV_WC_SUCCESS) {
            to.vendor_error = ibv_wc_read_vendor_err(extended_);
            return;
        }
        to.opcode = ibv_wc_read_opcode(extended_);
        to.bytes = ibv_wc_read_byte_len(extended_);
        if ((to.opcode & IBV_WC_RECV) == 0) return;
        to.source_qpn = ibv_wc_read_src_qp(extended_);
        to.has_immediate = (ibv_wc_read_wc_flags(extended_) & IBV_WC_WITH_IMM) != 0;
        if (to.has_immediate) to.immediate = be32toh(ibv_wc_read_imm_data(extended_));
    }

    ibv_cq* cq_;
    ibv_cq_ex* extended_ = nullptr;  // the same CQ, if it is polled as an extended one
};

}  // namespace heddle::post
