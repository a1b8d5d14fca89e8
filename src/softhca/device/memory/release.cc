// SPDX-License-Identifier: BSD-2-Clause
// The counterpart of sharing.cc. Pages that lose their last user become private memory again: at
// once, or later if writers cannot be held back now.

#include <algorithm>
#include <cerrno>
#include <new>

#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

namespace {

constexpr unsigned kIdleRunsTended = 4;  // in one share() or release()

}  // namespace

void Staging::skip_to(std::uint64_t address) noexcept {
    SOFTHCA_ASSERT(start_ <= end_);
    const std::uint64_t stop = std::min(address, end_);
    if (start_ >= stop) return;
    libc::munmap(reinterpret_cast<void*>(memory_), stop - start_);
    moved(stop - start_);
}

void Staging::moved(std::uint64_t length) noexcept {
    SOFTHCA_ASSERT(length <= end_ - start_);
    memory_ += length;
    start_ += length;
}

std::uint64_t Staging::provide(std::uint64_t address, std::uint64_t end,
                               std::uint64_t far_end) noexcept {
    SOFTHCA_ASSERT(address < end && end <= far_end);
    SOFTHCA_ASSERT(address >= start_ || start_ == end_);
    skip_to(address);
    if (start_ == end_) {
        // Allocate all at once. If the system refuses that much memory, allocate only what is
        // needed.
        for (const std::uint64_t stop : {far_end, end}) {
            void* at = libc::mmap(nullptr, stop - address, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at == MAP_FAILED) continue;
            start_ = address;
            end_ = stop;
            memory_ = reinterpret_cast<std::uint64_t>(at);
            break;
        }
    }
    return start_ == address && end_ >= end ? memory_ : 0;
}

// Makes [address, end) private again, if no store can be lost.
bool Sharing::restore(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                      std::uint64_t far_end, const Vma& vma, const OwnPages& own,
                      Staging* staging) {
    SOFTHCA_ASSERT(address < end && end <= far_end);
    if (own.meet(address, end)) return false;
    // Peers may be copying into pages that another registration left private.
    const auto left = left_.run_at(address);
    if (left.value > 0 || left.end < end) return false;
    bool application = false;
    for (std::uint64_t at = address + delta; at < end + delta; at = uses_.run_at(at).end)
        application |= uses_.at(at).application;
    if (application && kernel_pins()) return false;
    bool writers = !alone();
    if (writers && application) {
        if (guard.reach() != WriteGuard::Reach::kAllStores || !guard.holds_shared()) return false;
    } else if (writers && !guard.holds_shared()) {
        writers = false;  // nobody writes to a queue that is being destroyed
    }
    const std::uint64_t fresh = staging->provide(address, end, far_end);
    if (fresh == 0) return false;
    {
        const std::lock_guard exchanging(exchange_lock);
        const std::lock_guard viewing(view_lock);
        if (replaces_discarded()) {  // since the last look, perhaps
            Vma now;
            std::uint64_t stop = end;
            space.refresh();
            if (!still_ours(address, {true, delta}, &stop, &now) || stop < end) return false;
        }
        if (!make_private(address, end - address, address + delta, vma.protection(), writers,
                          fresh))
            return false;
        g_restorations.fetch_add(1, std::memory_order_seq_cst);
        set_place(address, end, Place{});
    }
    staging->moved(end - address);
    idle_.set(address, end, false);
    uses_.set(address + delta, end + delta, PageUse{});
    arena_free(address + delta, end - address);
    return true;
}

// Handles the first part of the arena's [offset, *end), which has no users, if the program moved it
// to another address. Otherwise returns false. Lowers *end to where the part ends.
bool Sharing::retire_moved(std::uint64_t offset, std::uint64_t* end, const OwnPages& own) {
    SOFTHCA_ASSERT(offset < *end);
    if (!any_moved_) return false;
    IntervalMap<Place>::Run found{};
    places.for_each([&](const IntervalMap<Place>::Run& run) {
        const std::uint64_t start = run.start + run.value.delta, stop = run.end + run.value.delta;
        if (start <= offset && offset < stop) found = run;
        if (start > offset) *end = std::min(*end, start);  // what lies there is another part
    });
    if (!found.value.mapped) return false;
    const std::uint64_t delta = found.value.delta, address = offset - delta;
    std::uint64_t stop = std::min(*end - delta, found.end);
    Vma vma;
    Staging staging;
    if (!still_ours(address, found.value, &stop, &vma))
        forget_place(address, stop);
    else if (!restore(address, stop, delta, stop, vma, own, &staging))
        idle_.set(address, stop, true);
    *end = stop + delta;
    return true;
}

// Handles the first part of [address, end), which was mapped at `delta` and has no users. Returns
// the end of that part. `far_end`: where the run of pages to handle ends.
std::uint64_t Sharing::retire(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                              std::uint64_t far_end, const OwnPages& own, Staging* staging) {
    const auto place = places.run_at(address);
    end = std::min(end, place.end);
    if (place.value != Place{true, delta}) {
        std::uint64_t offset_end = end + delta;
        if (!retire_moved(address + delta, &offset_end, own))
            discard_offsets(address + delta, offset_end);  // it was found stale earlier
        return offset_end - delta;
    }
    Vma vma;
    if (!still_ours(address, place.value, &end, &vma))
        forget_place(address, end);
    else if (!restore(address, end, delta, far_end, vma, own, staging))
        idle_.set(address, end, true);
    return end;
}

// Drops a registration's use of its pages, and handles the pages without users.
void Sharing::drop_extents(const Registration& made, const OwnPages& own,
                           std::unique_lock<std::mutex>* lock) {
    SOFTHCA_ASSERT(lock->owns_lock() && made.count <= kMaxExtents);
    for (unsigned i = 0; i < made.count; ++i) {
        const Extent& extent = made.extent[i];
        const std::uint64_t delta = extent.offset - extent.address;
        const std::uint64_t end = extent.address + extent.length;
        Staging staging;
        for (std::uint64_t at = extent.address; at < end;) {
            const std::uint64_t piece_end =
                std::min(end, (at + WriteGuard::kMostBytes) & ~(kHugeBytes - 1));
            uses_.update(at + delta, piece_end + delta, [](PageUse& use) {
                SOFTHCA_ASSERT(use.users > 0);
                --use.users;
            });
            while (at < piece_end) {
                const auto run = uses_.run_at(at + delta);
                const std::uint64_t stop = std::min(run.end, piece_end + delta) - delta;
                at = run.value.users > 0 ? stop : retire(at, stop, delta, end, own, &staging);
            }
            // Other threads may run between two steps of a large range.
            if (at < end) {
                lock->unlock();
                lock->lock();
                space.refresh();
            }
        }
    }
}

void Sharing::release(std::uint64_t ticket, const OwnPages& own) {
    std::unique_lock lock(mutex);
    forget_inherited();
    space.refresh();
    const auto found = registrations_.find(ticket);
    if (found == registrations_.end()) {
        LOG_DEBUG("release of pages that this process does not share");
        return;
    }
    const Registration made = found->second;
    registrations_.erase(found);
    made.for_each_left([this](std::uint64_t start, std::uint64_t end) {
        left_.update(start, end, [](std::uint32_t& count) {
            SOFTHCA_ASSERT(count > 0);
            --count;
        });
    });
    drop_extents(made, own, &lock);
    made.for_each_left([&](std::uint64_t start, std::uint64_t end) { tend_left(start, end, own); });
    tend_idle(own);
}

// Handles the pages of [start, end) that lost their last user while a registration had left them
// private, and which no other does. They may have any writers by now.
void Sharing::tend_left(std::uint64_t start, std::uint64_t end, const OwnPages& own) {
    for (std::uint64_t at = start; at < end && !idle_.empty();) {
        const auto run = idle_.run_at(at);
        const auto place = places.run_at(at);
        std::uint64_t stop = std::min({run.end, place.end, end, left_.run_at(at).end,
                                       (at + WriteGuard::kMostBytes) & ~(kHugeBytes - 1)});
        Vma vma;
        if (run.value && (alone() || guard.holds_shared())) {
            SOFTHCA_ASSERT(place.value.mapped, "idle pages are shared");
            const std::uint64_t delta = place.value.delta;
            uses_.update(at + delta, stop + delta, [](PageUse& use) { use.application = true; });
            Staging staging;
            if (!still_ours(at, place.value, &stop, &vma))
                forget_place(at, stop);
            else
                restore(at, stop, delta, stop, vma, own, &staging);
        }
        at = stop;
    }
}

// Handles a few runs of pages that could not be made private when they lost their last user.
void Sharing::tend_idle(const OwnPages& own) {
    if (idle_.empty()) return;
    const bool restorable = alone();  // with a write guard they would not be idle
    for (unsigned i = 0; i < kIdleRunsTended; ++i) {
        auto run = idle_.run_at(idle_next_);
        if (!run.value) {
            if (run.end == IntervalMap<bool>::kEnd) {
                idle_next_ = 0;
                return;
            }
            run = idle_.run_at(run.end);
        }
        const auto place = places.run_at(run.start);
        const std::uint64_t delta = place.value.delta;
        std::uint64_t end = std::min({run.end, place.end, run.start + WriteGuard::kMostBytes});
        idle_next_ = end;
        SOFTHCA_ASSERT(place.value.mapped && run.start < end);
        Vma vma;
        Staging staging;
        if (!still_ours(run.start, place.value, &end, &vma))
            forget_place(run.start, end);
        else if (restorable)
            restore(run.start, end, delta, end, vma, own, &staging);
    }
}

}  // namespace softhca::device::memory
