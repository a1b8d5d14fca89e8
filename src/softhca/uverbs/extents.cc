// SPDX-License-Identifier: BSD-2-Clause
// Records the shared pages of queues: see extents.h.
#include "softhca/uverbs/extents.h"

#include <mutex>
#include <unordered_map>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/device/own_memory.h"

namespace softhca::uverbs {
namespace {

std::mutex*& lock() {
    static std::mutex* made = new std::mutex;
    return made;
}
std::mutex& mutex() { return *lock(); }
std::unordered_map<std::uint64_t, QueueExtents>*& map() {  // under mutex()
    static auto* kept = new std::unordered_map<std::uint64_t, QueueExtents>;
    return kept;
}
std::uint64_t key(ObjectKind kind, std::uint32_t index) noexcept {
    return static_cast<std::uint64_t>(kind) << 32 | index;
}

}  // namespace

void keep_extents(ObjectKind kind, std::uint32_t index, QueueExtents extents) noexcept {
    std::lock_guard<std::mutex> guard(mutex());
    (*map())[key(kind, index)] = std::move(extents);
}

void keep_more_extents(ObjectKind kind, std::uint32_t index,
                       const device::memory::Extents& extents) noexcept {
    std::lock_guard<std::mutex> guard(mutex());
    const auto at = map()->find(key(kind, index));
    SOFTHCA_ASSERT(at != map()->end());
    at->second.more.push_back(extents);
}

QueueExtents take_extents(ObjectKind kind, std::uint32_t index) noexcept {
    std::lock_guard<std::mutex> guard(mutex());
    const auto at = map()->find(key(kind, index));
    if (at == map()->end()) return {};
    QueueExtents taken = std::move(at->second);
    map()->erase(at);
    return taken;
}

void release_queue(const device::memory::Extents& extents) noexcept {
    if (extents.length) device::own_memory::remove_queue(extents.address, extents.length);
    device::memory::release(extents);
}

void release_extents(const QueueExtents& extents) noexcept {
    release_queue(extents.buffer);
    release_queue(extents.record);
    for (const auto& more : extents.more)
        release_queue(more);
}

void forget_extents_after_fork() noexcept {
    leave_behind(lock());
    leave_behind(map());
    lock() = new std::mutex;  // a thread that the child does not have may hold the old one
    map() = new std::unordered_map<std::uint64_t, QueueExtents>;
}

}  // namespace softhca::uverbs
