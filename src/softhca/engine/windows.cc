// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/windows.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "softhca/base/assert.h"
#include "softhca/engine/key_change.h"

namespace softhca::engine {

using device::MemoryRegion;
using device::MemoryWindow;
using device::QueuePair;
using device::Segment;

namespace {

constexpr std::uint32_t kRemoteRights =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// What a window is at one time.
struct View {
    std::uint32_t key, is_bound, access, region, region_generation, qp;
    std::uint64_t address, length, iova;
};

// False: it is being changed all the time.
bool look(const MemoryWindow& window, View* out) noexcept {
    return look_at_one_time(window.changes, [&] {
        const auto relaxed = std::memory_order_relaxed;
        *out = {window.key.load(relaxed),
                window.is_bound.load(relaxed),
                window.access.load(relaxed),
                window.region.load(relaxed),
                window.region_generation.load(relaxed),
                window.qp.load(relaxed),
                window.address.load(relaxed),
                window.length.load(relaxed),
                window.iova.load(relaxed)};
    });
}

MemoryWindow* find(Segment& segment, std::uint32_t key) noexcept {
    const std::uint32_t index = (key >> 8) - device::kMaxMrs;
    if (!is_window_key(key)) return nullptr;
    MemoryWindow& window = segment.mws[index];
    return window.head.live() && window.key.load(std::memory_order_relaxed) == key ? &window
                                                                                   : nullptr;
}

// The region that it is bound to, if that is still there.
const MemoryRegion* region_of(const Segment& segment, const View& view) noexcept {
    if (view.region >= device::kMaxMrs) return nullptr;
    const MemoryRegion& region = segment.mrs[view.region];
    return region.head.live() && region.head.generation == view.region_generation ? &region
                                                                                  : nullptr;
}

// What a bind asks of the region (IBTA 10.6.7.2.3; rdma_core's ibv_bind_mw(3)).
const MemoryRegion* region_for(const Segment& segment, const MemoryWindow& window,
                               const WindowChange& change) noexcept {
    const std::uint32_t index = change.region_key >> 8;
    if (index >= device::kMaxMrs) return nullptr;
    const MemoryRegion& region = segment.mrs[index];
    const bool writes = change.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    const std::uint64_t into = change.address - region.iova;
    if (!region.head.live() || region.key != change.region_key || region.pd != window.pd ||
        region.head.owner() != window.head.owner() || !(region.access & IBV_ACCESS_MW_BIND) ||
        (writes && !(region.access & IBV_ACCESS_LOCAL_WRITE)) || change.address < region.iova ||
        into > region.length || change.length > region.length - into)
        return nullptr;
    return &region;
}

}  // namespace

std::uint8_t change_window(device::Fabric& fabric, const QueuePair& qp,
                           const WindowChange& change) noexcept {
    Segment& segment = fabric.segment();
    MemoryWindow* const window = find(segment, change.key);
    if (window == nullptr || window->head.owner() != fabric.slot() || window->pd != qp.pd)
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    const KeyChange right(window->changes);
    if (!right) return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    const auto relaxed = std::memory_order_relaxed;
    const bool is_bound = window->is_bound.load(relaxed) != 0;
    if ((change.must_be_free && is_bound) ||
        (change.must_be_own && is_bound && window->qp.load(relaxed) != qp.number))
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    if (change.frees) {
        // Only binding gives a key; invalidating one that is bound to nothing is an error.
        if (window->type == IBV_MW_TYPE_2 && !is_bound) return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    } else {
        const MemoryRegion* const region = region_for(segment, *window, change);
        if (region == nullptr) return MLX5_CQE_SYNDROME_MW_BIND_ERR;
        window->access.store(change.access & kRemoteRights, relaxed);
        window->region.store(change.region_key >> 8, relaxed);
        window->region_generation.store(region->head.generation, relaxed);
        window->qp.store(qp.number, relaxed);
        window->address.store(change.address, relaxed);
        window->length.store(change.length, relaxed);
        window->iova.store(change.iova, relaxed);
    }
    if (!change.frees || window->type == IBV_MW_TYPE_1)
        window->key.store((change.key & ~0xffu) | change.next_key, relaxed);
    window->is_bound.store(!change.frees, relaxed);
    return 0;
}

bool invalidate_window(Segment& segment, const QueuePair& target, std::uint32_t key) noexcept {
    MemoryWindow* const window = find(segment, key);
    if (window == nullptr || window->type != IBV_MW_TYPE_2) return false;
    const KeyChange right(window->changes);
    const auto relaxed = std::memory_order_relaxed;
    if (!right || window->is_bound.load(relaxed) == 0 || window->qp.load(relaxed) != target.number)
        return false;
    window->is_bound.store(0, relaxed);
    return true;
}

bool may_use(Segment& segment, std::uint32_t key, std::uint32_t qp) noexcept {
    const MemoryWindow* const window = find(segment, key);
    return window == nullptr || window->type != IBV_MW_TYPE_2 ||
           window->qp.load(std::memory_order_relaxed) == qp;
}

Access resolve_window(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                      std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                      SpanList& list) noexcept {
    const Segment& segment = fabric.segment();
    const MemoryWindow* const window = find(fabric.segment(), key);
    View view;
    if (window == nullptr || !look(*window, &view) || view.key != key || !view.is_bound)
        return Access::kBadKey;
    if (window->pd != pd) return Access::kBadDomain;
    const std::uint64_t into = address - view.iova;
    if (address < view.iova || into > view.length || length > view.length - into)
        return Access::kBadBounds;
    // It has no local rights: a work request of its owner's names the region.
    if ((rights & kRemoteRights) == 0 || (view.access & rights) != rights)
        return Access::kBadRights;
    const MemoryRegion* const region = region_of(segment, view);
    if (region == nullptr) return Access::kBadKey;
    return resolve(fabric, region->key, pd, view.address + into, length, 0, list);
}

}  // namespace softhca::engine
