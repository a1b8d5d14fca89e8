// SPDX-License-Identifier: BSD-2-Clause
// The process's own list of its queues and regions: see own_memory.h.
#include "softhca/device/own_memory.h"

#include <map>
#include <new>
#include <unordered_map>

#include "softhca/base/left_behind.h"
#include "softhca/device/lock.h"

namespace softhca::device::own_memory {
namespace {

struct Range {
    std::uint64_t address, length;

    bool operator==(const Range&) const = default;
    bool holds(std::uint64_t at, std::uint64_t bytes) const noexcept {
        return at >= address && at - address <= length && bytes <= length - (at - address);
    }
};

struct Known {
    // Two records may lie on the same eight bytes: a program's mistake, which has an entry each.
    std::multimap<std::uint64_t, Range> queues;  // by address
    std::unordered_map<std::uint32_t, Range> regions;
};

SpinLock g_known_lock;
Known*& known() noexcept {  // under g_known_lock
    static auto* kept = new Known;
    return kept;
}

}  // namespace

bool add_queue(std::uint64_t address, std::uint64_t length) noexcept {
    try {
        const Guard<SpinLock> guard(g_known_lock);
        known()->queues.emplace(address, Range{address, length});
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

void remove_queue(std::uint64_t address, std::uint64_t length) noexcept {
    const Guard<SpinLock> guard(g_known_lock);
    auto [at, last] = known()->queues.equal_range(address);
    for (; at != last; ++at)
        if (at->second == Range{address, length}) {
            known()->queues.erase(at);
            return;
        }
}

bool is_queue(std::uint64_t address, std::uint64_t length) noexcept {
    const Guard<SpinLock> guard(g_known_lock);
    const auto& queues = known()->queues;
    // Queues do not overlap, except where a program registers one twice: the nearest ones that
    // begin at one address are enough.
    auto at = queues.upper_bound(address);
    if (at == queues.begin()) return false;
    const std::uint64_t nearest = (--at)->first;
    for (auto [each, last] = queues.equal_range(nearest); each != last; ++each)
        if (each->second.holds(address, length)) return true;
    return false;
}

bool set_region(std::uint32_t index, std::uint64_t address, std::uint64_t length) noexcept {
    try {
        const Guard<SpinLock> guard(g_known_lock);
        known()->regions.insert_or_assign(index, Range{address, length});
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

void remove_region(std::uint32_t index) noexcept {
    const Guard<SpinLock> guard(g_known_lock);
    known()->regions.erase(index);
}

bool is_region(std::uint32_t index, std::uint64_t address, std::uint64_t length) noexcept {
    const Guard<SpinLock> guard(g_known_lock);
    const auto& regions = known()->regions;
    const auto at = regions.find(index);
    return at != regions.end() && at->second.holds(address, length);
}

void forget_after_fork() noexcept {
    g_known_lock.unlock();  // a thread that is not in the child may have held it
    leave_behind(known());
    known() = new Known;
}

}  // namespace softhca::device::own_memory
