// SPDX-License-Identifier: BSD-2-Clause
// Handles segments that the application unmapped, replaced or moved without our seeing it: munmap
// never passes through us, nor do mmap and mremap inside libc. Pages of the arena can be freed only
// when no mapping shows them any more.

#include <algorithm>
#include <mutex>
#include <new>

#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

namespace {

// A sweep looks at every shared mapping. Beyond these limits it runs only when it can free much.
constexpr std::size_t kFewPlaces = 128;
constexpr std::uint64_t kMuchMemory = 64ULL << 20;

}  // namespace

bool Sharing::shows(AddressSpace* in, std::uint64_t address, const Place& place, std::uint64_t* end,
                    Vma* vma) noexcept {
    SOFTHCA_ASSERT(place.mapped && address < *end);
    if (!in->find(address, vma)) return false;
    if (vma->start > address) {
        *end = std::min(*end, vma->start);
        return false;
    }
    *end = std::min(*end, vma->end);
    return vma->shared && vma->inode == arena_inode() && vma->device == arena_device() &&
           vma->offset + (address - vma->start) == address + place.delta;
}

// [start, end), which belongs to one Place, is no longer mapped to the arena.
void Sharing::forget_place(std::uint64_t start, std::uint64_t end) {
    SOFTHCA_ASSERT(start < end && places.at(start).mapped && places.run_at(start).end >= end);
    const std::uint64_t delta = places.at(start).delta;
    {
        const std::lock_guard viewing(view_lock);
        set_place(start, end, Place{});
    }
    idle_.set(start, end, false);
    ++counters_.stale;
    LOG_DEBUG("the application replaced shared pages at %#llx-%#llx",
              static_cast<unsigned long long>(start), static_cast<unsigned long long>(end));
    // Pages that registrations still use stay allocated until their release.
    for (std::uint64_t at = start + delta; at < end + delta;) {
        const auto run = uses_.run_at(at);
        const std::uint64_t stop = std::min(run.end, end + delta);
        if (run.value.users == 0) discard_offsets(at, stop);
        at = stop;
    }
}

void Sharing::discard_offsets(std::uint64_t start, std::uint64_t end) {
    SOFTHCA_ASSERT(start < end && start % page_bytes() == 0);
    uses_.set(start, end, PageUse{});
    limbo_.set(start, end, true);
    limbo_bytes_ += end - start;
    if (places.boundaries() <= kFewPlaces || limbo_bytes_ > limbo_kept_ + kMuchMemory ||
        limbo_.boundaries() > kFewPlaces)
        sweep_limbo();
}

void Sharing::sweep_limbo() {
    // The application may still use pages that it moved elsewhere (mremap), so these are kept.
    const auto window = reinterpret_cast<std::uint64_t>(arena_base());
    IntervalMap<bool> shown;
    Vma vma;
    space.refresh();
    for (std::uint64_t at = 0; space.find_shared_file(at, &vma); at = vma.end) {
        if (vma.inode != arena_inode() || vma.device != arena_device()) continue;
        if (vma.start >= window && vma.end <= window + arena_bytes()) continue;
        shown.set(vma.offset, vma.offset + (vma.end - vma.start), true);
    }
    limbo_kept_ = 0;
    for (std::uint64_t at = 0;;) {
        const auto run = limbo_.run_at(at);
        const auto part = shown.run_at(at);
        const std::uint64_t stop = std::min(run.end, part.end);
        if (run.value && part.value) limbo_kept_ += stop - at;
        if (run.value && !part.value) {
            limbo_.set(at, stop, false);
            arena_free(at, stop - at);
        }
        SOFTHCA_ASSERT(stop > at);
        if (stop == IntervalMap<bool>::kEnd) break;
        at = stop;
    }
    limbo_bytes_ = limbo_kept_;
}

}  // namespace softhca::device::memory
