// SPDX-License-Identifier: BSD-2-Clause
// Which locks libmlx5 takes: see driver_locks.h.
#include "softhca/engine/driver_locks.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/base/log.h"
#include "softhca/device/lock.h"

namespace softhca::engine {
namespace {

using record::Locked;

// libmlx5's functions. Written under g_watch_lock, before a context that calls ours is changed.
struct RealCreators {
    ibv_td* (*alloc_td)(ibv_context*, ibv_td_init_attr*);
    ibv_pd* (*alloc_parent_domain)(ibv_context*, ibv_parent_domain_init_attr*);
    ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*);
    bool operator==(const RealCreators&) const = default;
};
RealCreators g_creators{};
device::SpinLock g_watch_lock;
// Under g_watch_lock. Parent domains with a thread domain. One that was freed stays listed until
// its address is that of another parent domain.
std::vector<const ibv_pd*>* g_with_thread_domain = nullptr;
std::vector<const ibv_context*>* g_watched = nullptr;

std::atomic<bool> g_single_threaded{false};
// By page: 0 if it is not for QPs, else its rank + 1.
std::atomic<std::uint32_t> g_page_ranks[device::kMaxUarPages];

thread_local bool t_in_alloc_td = false;
enum class NewCq : std::uint8_t { kUnseen, kLocked, kSingleThreaded };
thread_local NewCq t_new_cq = NewCq::kUnseen;

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
    t_in_alloc_td = true;
    ibv_td* td = g_creators.alloc_td(context, attributes);
    t_in_alloc_td = false;
    return td;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
    ibv_pd* pd = g_creators.alloc_parent_domain(context, attributes);
    if (!pd) return pd;
    device::Guard<device::SpinLock> guard(g_watch_lock);
    SOFTHCA_ASSERT(g_with_thread_domain, "watch_context() has made the list");
    std::erase(*g_with_thread_domain, pd);
    if (attributes->td) g_with_thread_domain->push_back(pd);
    return pd;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    const bool single = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
                        (attributes->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    t_new_cq = single ? NewCq::kSingleThreaded : NewCq::kLocked;
    ibv_cq_ex* cq = g_creators.create_cq_ex(context, attributes);
    t_new_cq = NewCq::kUnseen;
    return cq;
}

template <class T>
bool contains(const std::vector<T>* list, T item) noexcept {
    return list && std::find(list->begin(), list->end(), item) != list->end();
}

}  // namespace

void watch_context(ibv_context* context) noexcept {
    SOFTHCA_ASSERT(context != nullptr, "the device has been opened");
    verbs_context* extended = verbs_get_ctx(context);
    if (!extended || !extended->alloc_td || !extended->alloc_parent_domain ||
        !extended->create_cq_ex)
        return;
    device::Guard<device::SpinLock> guard(g_watch_lock);
    if (!g_watched) {
        g_watched = new std::vector<const ibv_context*>;
        g_with_thread_domain = new std::vector<const ibv_pd*>;
    }
    const RealCreators real{extended->alloc_td, extended->alloc_parent_domain,
                            extended->create_cq_ex};
    if (!g_creators.alloc_td) g_creators = real;
    if (g_creators != real) {
        LOG_INFO("a context of another libmlx5: the run record does not know its locks");
        std::erase(*g_watched, context);  // an earlier context had that address
        return;
    }
    extended->alloc_td = alloc_td;
    extended->alloc_parent_domain = alloc_parent_domain;
    extended->create_cq_ex = create_cq_ex;
    if (!contains<const ibv_context*>(g_watched, context)) g_watched->push_back(context);
}

void read_single_threaded() noexcept {
    const char* text = getenv("MLX5_SINGLE_THREADED");
    g_single_threaded.store(text && strcmp(text, "1") == 0, std::memory_order_relaxed);
}

bool is_page_for_qps() noexcept { return !t_in_alloc_td; }

void note_uar_page(std::uint32_t page, bool for_qps, std::uint32_t rank) noexcept {
    SOFTHCA_ASSERT(page < device::kMaxUarPages, "the page is one of the device");
    g_page_ranks[page].store(for_qps ? rank + 1 : 0, std::memory_order_relaxed);
}

void note_static_uuar(LocalQp& local, std::uint32_t bfreg, std::uint32_t total,
                      std::uint32_t low_latency) noexcept {
    SOFTHCA_ASSERT(bfreg < total && low_latency < total, "the kernel has placed the QP");
    const bool shared = bfreg != 0 && bfreg < total - low_latency;
    local.lock = Locked::kYes;
    local.uuar_lock = shared ? Locked::kYes : Locked::kNo;
}

void note_thread_domain(LocalQp& local) noexcept { local.lock = local.uuar_lock = Locked::kNo; }

QpLocks locks_of(const ibv_qp& qp, const LocalQp& local, const device::QueuePair& object,
                 std::uint32_t low_latency) noexcept {
    if (g_single_threaded.load(std::memory_order_relaxed)) return {Locked::kNo, Locked::kNo};
    if (local.lock != Locked::kUnknown) return {local.lock, local.uuar_lock};
    {
        device::Guard<device::SpinLock> guard(g_watch_lock);
        if (!contains<const ibv_context*>(g_watched, qp.context)) return {};
        if (contains<const ibv_pd*>(g_with_thread_domain, qp.pd)) return {Locked::kNo, Locked::kNo};
    }
    QpLocks locks{Locked::kYes, Locked::kUnknown};
    if (object.uar_page >= device::kMaxUarPages) return locks;
    if (!object.blueflame) {  // libmlx5's page without BlueFlame, which has no lock
        locks.uuar = Locked::kNo;
        return locks;
    }
    // The first pages serve one QP a uUAR, until there are as many as low-latency uUARs.
    const std::uint32_t rank = g_page_ranks[object.uar_page].load(std::memory_order_relaxed);
    const std::uint32_t dedicated = (low_latency + device::kUuarsPerUar - 1) / device::kUuarsPerUar;
    if (rank != 0) locks.uuar = rank - 1 < dedicated ? Locked::kNo : Locked::kYes;
    return locks;
}

Locked lock_of_new_cq(PolledBy polled) noexcept {
    if (g_single_threaded.load(std::memory_order_relaxed)) return Locked::kNo;
    if (polled == PolledBy::kUnseen) return Locked::kUnknown;
    if (polled == PolledBy::kCall) return Locked::kYes;
    switch (t_new_cq) {
        case NewCq::kSingleThreaded:
            return Locked::kNo;
        case NewCq::kLocked:
            return Locked::kYes;
        case NewCq::kUnseen:
            break;
    }
    return Locked::kUnknown;
}

void forget_driver_locks_after_fork() noexcept {
    g_watch_lock.unlock();  // a thread that is not in the child may have held it
    leave_behind(g_watched);
    leave_behind(g_with_thread_domain);
    g_watched = nullptr;
    g_with_thread_domain = nullptr;
    t_in_alloc_td = false;
    t_new_cq = NewCq::kUnseen;
}

}  // namespace softhca::engine
