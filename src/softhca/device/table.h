// SPDX-License-Identifier: BSD-2-Clause
// Reserving, publishing and freeing objects in the tables of the segment.
#pragma once

#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"

namespace softhca::device {

// How many items from the first on may have been used. A member of the fabric may have changed the
// count: it is never more than the table has.
template <class T, std::uint32_t N>
std::uint32_t used(const Table<T, N>& table) noexcept {
    const std::uint32_t high = table.high.load(std::memory_order_acquire);
    return high < N ? high : N;
}

// Where the search for a free item begins. kOnward begins behind the last item that was taken, so
// numbers are not reused at once. kLowest begins at the lowest index, so they are.
enum class Search : std::uint8_t { kOnward, kLowest };

// As reserve(). The caller holds the table's lock.
template <class T, std::uint32_t N>
T* reserve_locked(Table<T, N>& table, Fabric& fabric, std::uint32_t context, std::uint32_t first,
                  std::uint32_t* index, Search search = Search::kOnward) noexcept;

// A free item, now reserved, with everything but its head cleared. nullptr if the table is full
// (ENOMEM).
template <class T, std::uint32_t N>
T* reserve(Table<T, N>& table, Fabric& fabric, std::uint32_t context, std::uint32_t first,
           std::uint32_t* index, Search search = Search::kOnward) noexcept {
    if (!table.lock.lock()) return nullptr;
    T* found = reserve_locked(table, fabric, context, first, index, search);
    table.lock.unlock();
    return found;
}

template <class T, std::uint32_t N>
T* reserve_locked(Table<T, N>& table, Fabric& fabric, std::uint32_t context, std::uint32_t first,
                  std::uint32_t* index, Search search) noexcept {
    SOFTHCA_DEBUG_ASSERT(first < N && index != nullptr);
    SOFTHCA_DEBUG_ASSERT(fabric.slot() < kMaxProcesses);
    std::uint32_t at = search == Search::kLowest ? first : table.cursor;
    for (std::uint32_t n = 0; n < N; ++n, ++at) {
        if (at >= N) at = 0;
        if (at < first) at = first;
        T& item = table.items[at];
        if (item.head.state.load(std::memory_order_acquire) != kFree) continue;
        const std::uint32_t generation = item.head.generation + 1;
        // The last user may have left values behind the head.
        std::memset(reinterpret_cast<std::byte*>(&item) + sizeof(ObjectHead), 0,
                    sizeof(T) - sizeof(ObjectHead));
        item.head.generation = generation;
        item.head.set_owner(fabric.slot());
        item.head.context = context;
        item.head.state.store(kReserved, std::memory_order_release);
        table.cursor = at + 1;
        if (table.high.load(std::memory_order_relaxed) <= at)
            table.high.store(at + 1, std::memory_order_release);
        table.in_use.fetch_add(1, std::memory_order_relaxed);
        SOFTHCA_ASSERT(at >= first && at < N);
        *index = at;
        return &item;
    }
    return nullptr;
}

inline void publish(ObjectHead& head) noexcept {
    head.state.store(kLive, std::memory_order_release);
}

// Frees an item. epoch::synchronize() must have succeeded, unless the object was never published.
template <class T, std::uint32_t N>
void free_item(Table<T, N>& table, T& item) noexcept {
    SOFTHCA_ASSERT(&item >= table.items && &item < table.items + N);
    table.in_use.fetch_sub(1, std::memory_order_relaxed);
    item.head.state.store(kFree, std::memory_order_release);
}

// The live object of that index if it belongs to this context of this process, else nullptr.
template <class T, std::uint32_t N>
T* find_own(Table<T, N>& table, Fabric& fabric, std::uint32_t context,
            std::uint32_t index) noexcept {
    if (index >= N) return nullptr;
    T& item = table.items[index];
    if (!item.head.live() || item.head.owner() != fabric.slot() || item.head.context != context)
        return nullptr;
    return &item;
}

}  // namespace softhca::device
