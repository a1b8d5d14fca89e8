// SPDX-License-Identifier: BSD-2-Clause
// The table of a process's own QPs: see local.h.
#include "softhca/engine/local.h"

#include <new>

#include "softhca/base/left_behind.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/queue_memory.h"

namespace softhca::engine {

using device::Fabric;
using device::QueuePair;

std::atomic<LocalQp*> g_local_qps[device::kMaxQps];
std::atomic<std::uint32_t> g_local_qps_high{0};

LocalQp* add_local_qp(Fabric& fabric, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps, "the index is that of a QP of this process");
    QueuePair& qp = fabric.segment().qps[index];
    auto* local = new (std::nothrow) LocalQp;
    if (!local) return nullptr;
    const std::uint32_t sq_count = qp.sq_count;
    local->index = index;
    local->number = qp.number;
    local->engine = options().engine;
    local->most_by_fast_path = by_packets() ? kSmallestPacket : device::kMaxMessage;
    local->send_ring = nullptr;
    local->send_record = nullptr;
    local->posters_record = nullptr;
    local->ring_blocks = sq_count;
    local->user_handle = qp.user_handle;
    local->takes_blueflame = qp.blueflame;
    local->checks_register = options().device.has(DeviceTrait::kSharedUuar);
    if (sq_count) {
        local->send_ring = queue_pointer(fabric, fabric.slot(), qp.buffer, qp.sq_offset,
                                         std::uint64_t{sq_count} * 64);
        local->send_record = reinterpret_cast<const std::uint32_t*>(
            queue_words(fabric, fabric.slot(), qp.record, 4, 4));
        local->posters_record = reinterpret_cast<void*>(qp.record.address + 4);
        if (!local->send_ring || !local->send_record) {
            delete local;
            return nullptr;
        }
    }
    g_local_qps[index].store(local, std::memory_order_release);
    std::uint32_t high = g_local_qps_high.load();
    while (high <= index && !g_local_qps_high.compare_exchange_weak(high, index + 1)) {
    }
    SOFTHCA_ASSERT(g_local_qps_high.load() > index, "the bound only grows");
    return local;
}

void remove_local_qp(std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kMaxQps, "the index is that of a QP of this process");
    LocalQp* local = g_local_qps[index].load(std::memory_order_acquire);
    if (!local) return;
    SOFTHCA_ASSERT(local->index == index && !local->dead.load(), "a QP is removed once");
    local->run_lock.lock();
    if (Fabric* fabric = Fabric::current()) {
        device::epoch::Section section;
        send_what_is_held(*fabric, *local);
        abandon_unfinished(*fabric, *local);
    }
    local->dead.store(true, std::memory_order_seq_cst);
    local->run_lock.unlock();
    g_local_qps[index].store(nullptr, std::memory_order_release);
    remove_pending(*local);
    SOFTHCA_ASSERT(!local->pending.load(), "a dead QP does not come back to the list");
    forget_direct(*local);
    if (device::epoch::synchronize_own()) delete local;  // else a stopped thread may still hold it
}

void forget_local_qps_after_fork() noexcept {
    const std::uint32_t high = g_local_qps_high.load();
    SOFTHCA_ASSERT(high <= device::kMaxQps, "the bound is that of the table");
    for (std::uint32_t i = 0; i < high; ++i)
        leave_behind(g_local_qps[i].exchange(nullptr));
}

}  // namespace softhca::engine
