// SPDX-License-Identifier: BSD-2-Clause
// Reports to the run record: see recording.h.
#include "softhca/engine/recording.h"

#include <infiniband/mlx5dv.h>

#include "common/give_way.h"
#include "softhca/base/assert.h"
#include "softhca/device/table.h"
#include "softhca/engine/doorbell_count.h"
#include "softhca/engine/driver_locks.h"
#include "softhca/engine/exports.h"

namespace softhca::engine {
namespace {

using device::Fabric;
using device::QueuePair;

// The register that libmlx5 uses for this QP: only libmlx5 knows which one of a page it is.
const void* register_of(ibv_qp* qp) noexcept {
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp.in = qp;
    object.qp.out = &out;
    const InitObj init = real_init_obj();
    return init && init(&object, MLX5DV_OBJ_QP) == 0 ? out.bf.reg : nullptr;
}

// Registers of the first uUAR lie at 0x800 and 0x900 in the page, those of the second 0x200 behind.
std::uint32_t uuar_of(const void* uar_register) noexcept {
    if (uar_register == nullptr) return record::kUnknownUuar;
    const auto address = reinterpret_cast<std::uintptr_t>(uar_register);
    return address & device::kBfRegisterBytes ? 1 : 0;
}

// `by_libmlx5`: the ibv_qp if libmlx5 posts. A program that posts itself takes locks of its own.
void describe(Fabric& fabric, LocalQp& local, const QueuePair& qp, const void* uar_register,
              const ibv_qp* by_libmlx5) noexcept {
    record::QpObject object;
    object.number = qp.number;
    object.context = qp.head.context;
    object.page = qp.uar_page == device::kNone ? record::kNoPage : qp.uar_page;
    object.uuar = uuar_of(uar_register);
    object.send_cq = qp.send_cq;
    object.depth = qp.max_send_wr;
    if (by_libmlx5 && qp.head.context < device::kMaxContexts) {
        const QpLocks locks = locks_of(
            *by_libmlx5, local, qp, fabric.segment().contexts[qp.head.context].low_latency_uuars);
        object.lock = locks.queue;
        object.uuar_lock = locks.uuar;
    }
    record::describe(object);
    local.description.store(LocalQp::kThere, std::memory_order_release);
}

// Whether this thread is the one to describe the QP. If not, the QP is described when it returns.
bool must_describe(LocalQp& local) noexcept {
    if (local.description.load(std::memory_order_acquire) == LocalQp::kThere) return false;
    std::uint8_t missing = LocalQp::kMissing;
    if (local.description.compare_exchange_strong(missing, LocalQp::kBegun)) return true;
    while (local.description.load(std::memory_order_acquire) != LocalQp::kThere)
        common::give_way();
    return false;
}

record::Event post_event(const QueuePair& qp) noexcept {
    record::Event event;
    event.kind = record::EventKind::kPost;
    event.object = qp.number;
    return event;
}

}  // namespace

void record_cq(Fabric& fabric, std::uint32_t index, PolledBy polled) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxCqs, "the index is that of a CQ of this process");
    const device::CompletionQueue& cq = fabric.segment().cqs[index];
    record::describe(record::CqObject{cq.number, cq.head.context, lock_of_new_cq(polled)});
}

void record_post(Fabric& fabric, LocalQp& local, ibv_qp* qp, const ibv_send_wr* first,
                 const ibv_send_wr* end) noexcept {
    const QueuePair& object = fabric.segment().qps[local.index];
    record::Event event = post_event(object);
    for (const ibv_send_wr* wr = first; wr && wr != end; wr = wr->next) {
        ++event.entries;
        const bool is_inline = (wr->send_flags & IBV_SEND_INLINE) && wr->num_sge > 0;
        event.inlines += is_inline;
        event.signaled += object.signal_all || (wr->send_flags & IBV_SEND_SIGNALED);
        event.reads += wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        for (int i = 0; i < wr->num_sge; ++i) {
            const ibv_sge& entry = wr->sg_list[i];
            event.bytes += entry.length;
            if (!is_inline && entry.length != 0 && event.line == record::kNoLine)
                event.line = record::line_of(entry.addr);
        }
    }
    if (event.entries == 0) return;  // libmlx5 has rung no doorbell
    event.blueflame = by_blueflame(object, shape_of(object, first, end));
    if (must_describe(local)) describe(fabric, local, object, register_of(qp), qp);
    local.recorded_to.store(posted_so_far(local), std::memory_order_relaxed);
    record::add(event);
}

void record_ring_post(Fabric& fabric, LocalQp& local, ibv_qp* qp, std::uint16_t from,
                      std::uint32_t blocks, bool blueflame) noexcept {
    const QueuePair& object = fabric.segment().qps[local.index];
    record::Event event = post_event(object);
    outline_in_ring(object, local, from, blocks, event);
    if (event.entries == 0) return;
    event.blueflame = blueflame;
    if (must_describe(local)) describe(fabric, local, object, register_of(qp), qp);
    local.recorded_to.store(posted_so_far(local), std::memory_order_relaxed);
    record::add(event);
}

void record_direct_post(Fabric& fabric, LocalQp& local, const void* uar_register,
                        bool blueflame) noexcept {
    const QueuePair& object = fabric.segment().qps[local.index];
    record::Event event = post_event(object);
    const std::uint16_t from = local.recorded_to.load(std::memory_order_relaxed);
    const std::uint16_t to = posted_so_far(local);
    outline_in_ring(object, local, from, static_cast<std::uint16_t>(to - from), event);
    event.blueflame = blueflame;
    if (must_describe(local)) describe(fabric, local, object, uar_register, nullptr);
    local.recorded_to.store(to, std::memory_order_relaxed);
    record::add(event);  // also without WQEs: the device has counted the doorbell
}

void record_poll(std::uint32_t cq, std::uint32_t cqes) noexcept {
    SOFTHCA_DEBUG_ASSERT(cqes != 0, "polls that find nothing depend on the scheduler");
    record::Event event;
    event.kind = record::EventKind::kPoll;
    event.object = cq;
    event.entries = cqes;
    record::add(event);
}

namespace {

record::QpTotals totals_of(const QueuePair& qp) noexcept {
    const auto get = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    return {get(qp.send.wqes), get(qp.send.doorbells), get(qp.send.blueflame),
            get(qp.send.dma_read_payload)};
}

}  // namespace

void record_end_of_qp(Fabric& fabric, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps, "the index is that of a QP of this process");
    const QueuePair& qp = fabric.segment().qps[index];
    if (qp.sq_count != 0) record::end_qp(qp.number, totals_of(qp));
}

void record_end_of_cq(Fabric& fabric, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxCqs, "the index is that of a CQ of this process");
    const device::CompletionQueue& cq = fabric.segment().cqs[index];
    record::end_cq(cq.number, cq.counters.dma_write_cqe.load(std::memory_order_relaxed));
}

void finish_record(record::Ending ending) noexcept {
    record::finish(ending, [](record::Ending how) {
        Fabric* fabric = Fabric::current();
        if (!fabric) return;
        device::Segment& segment = fabric->segment();
        for (std::uint32_t i = 0; i < device::used(segment.qps); ++i) {
            const QueuePair& qp = segment.qps[i];
            if (qp.head.live() && qp.head.owner() == fabric->slot() && qp.sq_count != 0)
                record::write_totals(how, record::Line::qp_totals(qp.number, totals_of(qp)));
        }
        for (std::uint32_t i = 0; i < device::used(segment.cqs); ++i) {
            const device::CompletionQueue& cq = segment.cqs[i];
            if (cq.head.live() && cq.head.owner() == fabric->slot())
                record::write_totals(
                    how, record::Line::cq_totals(
                             cq.number, cq.counters.dma_write_cqe.load(std::memory_order_relaxed)));
        }
    });
}

}  // namespace softhca::engine
