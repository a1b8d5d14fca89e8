// SPDX-License-Identifier: BSD-2-Clause
// Wraps the ops table: see hooks.h.
#include "softhca/engine/hooks.h"

#include <infiniband/verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/tsan.h"
#include "softhca/device/epoch.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/doorbell_count.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/posted.h"
#include "softhca/engine/receive.h"
#include "softhca/engine/recording.h"
#include "softhca/engine/register_check.h"
#include "softhca/engine/srq_waiters.h"

namespace softhca::engine {

using device::Fabric;
namespace epoch = device::epoch;

namespace {

// libmlx5's functions. One libmlx5 has one set of them. A context with another set (of a second
// copy of the library) is not wrapped, and its QPs are polled. Written under g_lock, before the
// table that calls them is changed.
struct Real {
    int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
    int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
    int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**);
    int (*poll_cq)(ibv_cq*, int, ibv_wc*);
    int (*req_notify_cq)(ibv_cq*, int);
    int (*bind_mw)(ibv_qp*, ibv_mw*, ibv_mw_bind*);
};
Real g_real{};
device::SpinLock g_tables_lock;

using StartPoll = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);
using WrStart = void (*)(ibv_qp_ex*);
using WrComplete = int (*)(ibv_qp_ex*);
std::atomic<StartPoll> g_start_poll[device::kMaxCqs];
// Only for the run record. `taken`: the completions since ibv_start_poll(), written by the one
// thread that polls.
using NextPoll = int (*)(ibv_cq_ex*);
using EndPoll = void (*)(ibv_cq_ex*);
struct BatchPoll {
    std::atomic<NextPoll> next;
    std::atomic<EndPoll> end;
    std::atomic<std::uint32_t> taken;
};
BatchPoll g_batch_poll[device::kMaxCqs];
std::atomic<WrStart> g_wr_start{nullptr};
std::atomic<WrComplete> g_wr_complete{nullptr};

void posted(ibv_qp* qp, const ibv_send_wr* first, const ibv_send_wr* end) noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric) return;
    epoch::Section section;
    LocalQp* local = local_qp(qp->qp_num);
    if (!local || !local->send_ring) return;
    device::QueuePair& object = fabric->segment().qps[local->index];
    if (local->checks_register) [[unlikely]]
        check_register_write(*fabric, object, local->index, RegisterWriter::kDriver,
                             by_blueflame(object, shape_of(object, first, end)));
    run_posted(*fabric, *local);  // the payload first, because the receiver waits for it
    count_post(object, shape_of(object, first, end));
    if (record::on()) [[unlikely]]
        record_post(*fabric, *local, qp, first, end);
}

// Runs before libmlx5 posts, for ThreadSanitizer only.
void about_to_post([[maybe_unused]] const ibv_qp* qp) noexcept {
#if defined(__SANITIZE_THREAD__)
    if (!Fabric::current()) return;
    epoch::Section section;
    if (const LocalQp* local = local_qp(qp->qp_num)) tsan_release(local->posters_record);
#endif
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    SOFTHCA_DEBUG_ASSERT(g_real.post_send, "hook_context() has it before it changes a table");
    about_to_post(qp);
    const int result = g_real.post_send(qp, wr, bad);
    posted(qp, wr, result ? *bad : nullptr);
    return result;
}

// libmlx5 posts it without its own post_send.
int bind_mw(ibv_qp* qp, ibv_mw* window, ibv_mw_bind* bind) {
    about_to_post(qp);
    const int result = g_real.bind_mw(qp, window, bind);
    if (result) return result;
    ibv_send_wr wr{};
    wr.wr_id = bind->wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = bind->send_flags;
    wr.bind_mw = {window, window->rkey, bind->bind_info};
    posted(qp, &wr, nullptr);
    return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    const int result = g_real.post_recv(qp, wr, bad);
    Fabric* fabric = Fabric::current();
    if (!fabric) return result;
    const std::uint32_t index = qp->qp_num & (device::kMaxQps - 1);
    device::QueuePair& object = fabric->segment().qps[index];
    // The thread that fails the QP changes its state, executes a heavy barrier, and flushes the
    // WQEs that it sees posted. So post first, then look at the state.
    epoch::light_barrier();
    if (object.state.load(std::memory_order_acquire) == IBV_QPS_ERR) {
        epoch::Section section;
        if (local_qp(qp->qp_num)) flush_receives(*fabric, index);
    }
    return result;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    const int result = g_real.post_srq_recv(srq, wr, bad);
    if (Fabric* fabric = Fabric::current()) {
        epoch::Section section;
        receives_posted(*fabric, srq->handle);
    }
    return result;
}

// Runs after a poll that found something, for ThreadSanitizer only.
void polled([[maybe_unused]] std::uint32_t index) noexcept {
#if defined(__SANITIZE_THREAD__)
    if (Fabric* fabric = Fabric::current())
        tsan_acquire(&fabric->segment().cqs[index & (device::kMaxCqs - 1)]);
#endif
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc) {
    int found = g_real.poll_cq(cq, entries, wc);
    if (found == 0 && work_while_empty()) found = g_real.poll_cq(cq, entries, wc);
    if (found != 0) polled(cq->handle);
    if (found > 0 && record::on()) [[unlikely]]
        record_poll(cq->handle, static_cast<std::uint32_t>(found));
    return found;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
    const int result = g_real.req_notify_cq(cq, solicited_only);
    if (Fabric* fabric = Fabric::current()) {
        epoch::Section section;
        check_armed(*fabric, cq->handle);
        program_may_sleep(*fabric);
    }
    return result;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
    const std::uint32_t index = ibv_cq_ex_to_cq(cq)->handle & (device::kMaxCqs - 1);
    const StartPoll real = g_start_poll[index].load(std::memory_order_acquire);
    SOFTHCA_DEBUG_ASSERT(real, "hook_cq() has it before it changes the CQ");
    int result = real(cq, attr);
    if (result == ENOENT && work_while_empty()) result = real(cq, attr);
    if (result != ENOENT) polled(index);
    if (result == 0 && record::on()) [[unlikely]]
        g_batch_poll[index].taken.store(1, std::memory_order_relaxed);
    return result;
}

int next_poll(ibv_cq_ex* cq) {
    BatchPoll& batch = g_batch_poll[ibv_cq_ex_to_cq(cq)->handle & (device::kMaxCqs - 1)];
    const int result = batch.next.load(std::memory_order_acquire)(cq);
    if (result == 0) batch.taken.fetch_add(1, std::memory_order_relaxed);
    return result;
}

void end_poll(ibv_cq_ex* cq) {
    const std::uint32_t index = ibv_cq_ex_to_cq(cq)->handle & (device::kMaxCqs - 1);
    BatchPoll& batch = g_batch_poll[index];
    // libmlx5's lock is released by its function, and then another thread may poll.
    const std::uint32_t taken = batch.taken.exchange(0, std::memory_order_relaxed);
    batch.end.load(std::memory_order_acquire)(cq);
    if (taken != 0 && record::on()) record_poll(index, taken);
}

void hook_batch_poll(std::uint32_t index, ibv_cq_ex& cq) noexcept {
    if (!cq.next_poll || !cq.end_poll || cq.next_poll == next_poll) return;
    BatchPoll& batch = g_batch_poll[index];
    batch.taken.store(0, std::memory_order_relaxed);
    batch.next.store(cq.next_poll, std::memory_order_release);
    batch.end.store(cq.end_poll, std::memory_order_release);
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
}

int wr_complete(ibv_qp_ex* qp) {
    Fabric* fabric = Fabric::current();
    const std::uint32_t number = qp->qp_base.qp_num;
    // From wr_start to here the thread holds libmlx5's lock of the send queue. So this call wrote
    // what is in the ring beyond the doorbell record. Look at these WQEs before other threads can
    // add more.
    std::uint16_t from = 0;
    std::uint32_t blocks = 0;
    if (fabric) {
        epoch::Section section;
        if (LocalQp* local = local_qp(number); local && local->send_ring) {
            from = posted_so_far(*local);
            tsan_release(local->posters_record);
            blocks = blocks_in_ring(fabric->segment().qps[local->index], *local);
        }
    }
    const int result = g_wr_complete.load(std::memory_order_acquire)(qp);
    if (!fabric || result) return result;
    epoch::Section section;
    if (LocalQp* local = local_qp(number); local && local->send_ring) {
        device::QueuePair& object = fabric->segment().qps[local->index];
        const auto moved = static_cast<std::uint16_t>(posted_so_far(*local) - from);
        const PostShape shape =
            shape_in_ring(object, *local, from, std::min<std::uint32_t>(blocks, moved));
        count_post(object, shape);
        if (local->checks_register) [[unlikely]]
            check_register_write(*fabric, object, local->index, RegisterWriter::kDriver,
                                 by_blueflame(object, shape));
        if (record::on()) [[unlikely]]
            record_ring_post(*fabric, *local, &qp->qp_base, from,
                             std::min<std::uint32_t>(blocks, moved), by_blueflame(object, shape));
        run_or_list(*fabric, *local, Runner::kPoster);
    }
    return result;
}

void wr_start(ibv_qp_ex* qp) {
    g_wr_start.load(std::memory_order_acquire)(qp);
    if (qp->wr_complete == wr_complete) return;
    // libmlx5 sets wr_complete at each change of state. When the QP may send it sets the real
    // function, which stays in later states. Before, it sets a function that only fails.
    const WrComplete known = g_wr_complete.load(std::memory_order_acquire);
    const ibv_qp_state state = qp->qp_base.state;
    if (state == IBV_QPS_RTS) {
        g_wr_complete.store(qp->wr_complete, std::memory_order_release);
        qp->wr_complete = wr_complete;
    } else if (state > IBV_QPS_RTS && known == qp->wr_complete) {
        qp->wr_complete = wr_complete;
    } else if (state > IBV_QPS_RTS && !known) {
        Fabric* fabric = Fabric::current();
        epoch::Section section;
        LocalQp* local = local_qp(qp->qp_base.qp_num);
        if (fabric && local) mark_direct(*fabric, *local);
    }
}

// Whether posts through this context reach our functions.
bool hook_context(ibv_context* context) noexcept {
    ibv_context_ops& ops = context->ops;
    device::Guard<device::SpinLock> guard(g_tables_lock);
    if (ops.post_send == post_send) return true;
    const Real real{ops.post_send, ops.post_recv,     ops.post_srq_recv,
                    ops.poll_cq,   ops.req_notify_cq, ops.bind_mw};
    if (!g_real.post_send) {
        g_real = real;
    } else if (g_real.post_send != real.post_send || g_real.poll_cq != real.poll_cq ||
               g_real.post_recv != real.post_recv || g_real.req_notify_cq != real.req_notify_cq ||
               g_real.post_srq_recv != real.post_srq_recv || g_real.bind_mw != real.bind_mw) {
        LOG_INFO("a context of another libmlx5: its posts are found by polling");
        return false;
    }
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
    ops.req_notify_cq = req_notify_cq;
    ops.poll_cq = poll_cq;
    ops.bind_mw = bind_mw;
    ops.post_send = post_send;
    return true;
}

}  // namespace

PolledBy hook_cq(std::uint32_t index, std::uint64_t user_handle, bool extended) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxCqs, "the index is that of a CQ of this process");
    auto* cq = reinterpret_cast<ibv_cq*>(static_cast<std::uintptr_t>(user_handle));
    Fabric* fabric = Fabric::current();
    if (!fabric || !cq || !cq->context || !hook_context(cq->context)) return PolledBy::kUnseen;
    // ibv_poll_cq() shows no timestamps. libmlx5 sets start_poll if the program wants any.
    fabric->segment().cqs[index].timestamps =
        extended && reinterpret_cast<ibv_cq_ex*>(cq)->start_poll != nullptr;
    if (!extended) return PolledBy::kCall;
    // CREATE_CQ_EX is also used for plain CQs. libmlx5 always allocates room for the extended CQ,
    // and leaves start_poll unset if none was asked for.
    auto* extension = reinterpret_cast<ibv_cq_ex*>(cq);
    if (extension->start_poll && extension->start_poll != start_poll) {
        g_start_poll[index].store(extension->start_poll, std::memory_order_release);
        extension->start_poll = start_poll;
        if (record::on()) hook_batch_poll(index, *extension);
    }
    return extension->start_poll ? PolledBy::kBatch : PolledBy::kCall;
}

void unhook_cq(std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxCqs, "the index is that of a CQ of this process");
    g_start_poll[index].store(nullptr, std::memory_order_release);
}

void hook_qp(LocalQp& local, std::uint64_t user_handle) noexcept {
    auto* qp = reinterpret_cast<ibv_qp*>(static_cast<std::uintptr_t>(user_handle));
    Fabric* fabric = Fabric::current();
    if (!qp || !fabric) return;
    if (!qp->context || !hook_context(qp->context)) {
        mark_direct(*fabric, local);
        return;
    }
    // libmlx5 allocates every QP with room for the extended one (struct verbs_qp).
    auto* extension = reinterpret_cast<ibv_qp_ex*>(qp);
    if (extension->wr_start && extension->wr_start != wr_start) {
        g_wr_start.store(extension->wr_start, std::memory_order_release);
        extension->wr_start = wr_start;
    }
}

}  // namespace softhca::engine
