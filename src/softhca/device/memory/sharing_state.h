// SPDX-License-Identifier: BSD-2-Clause
// What this process knows of its shared pages, and the steps that share(), release() and fork are
// made of. Internal to device/memory/.
//
// Nothing here is believed about the address space: the application may have replaced any mapping
// without our seeing it, so each step first asks the kernel what is there (AddressSpace). Nothing
// here uses the heap (pool_allocator.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "softhca/base/options.h"
#include "softhca/device/memory/address_space.h"
#include "softhca/device/memory/advice.h"
#include "softhca/device/memory/exchange_lock.h"
#include "softhca/device/memory/interval_map.h"
#include "softhca/device/memory/own_fds.h"
#include "softhca/device/memory/pool_allocator.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/memory/write_guard.h"

namespace softhca::device::memory {

// Addresses that the calling thread itself needs while pages are exchanged: its stack, its
// thread-local storage (errno), our own variables.
class OwnPages {
public:
    OwnPages() noexcept;  // of the caller and everything it calls
    bool meet(std::uint64_t start, std::uint64_t end) const noexcept {
        return stack_.meets(start, end) || local_.meets(start, end) || variables_.meets(start, end);
    }
    bool meet_stack(std::uint64_t start, std::uint64_t end) const noexcept {
        return stack_.meets(start, end);
    }

private:
    struct Range {
        std::uint64_t start, end;
        bool meets(std::uint64_t other_start, std::uint64_t other_end) const noexcept {
            return start < other_end && other_start < end;
        }
    };
    Range stack_, local_, variables_;
};

// An address is mapped to the arena at address + delta (modulo 2^64).
struct Place {
    bool mapped = false;
    std::uint64_t delta = 0;
    bool operator==(const Place&) const = default;
};

// Of a page of the arena that holds, or held, application memory.
struct Use {
    std::uint32_t users = 0;   // registrations
    bool application = false;  // some registration since it was made shared was an application's
    bool operator==(const Use&) const = default;
};

// One share() that has not been released.
struct Registration {
    std::uint64_t start = 0;  // what was asked for, in whole pages
    std::uint64_t end = 0;
    unsigned count = 0;
    Extent extent[kMaxExtents];

    // Calls visit(start, end) for what the extents leave out of the range.
    template <typename Visit>
    void for_each_left(Visit visit) const {
        std::uint64_t at = start;
        for (unsigned i = 0; i < count; ++i) {
            if (extent[i].address > at) visit(at, extent[i].address);
            at = extent[i].address + extent[i].length;
        }
        if (end > at) visit(at, end);
    }
};

// New private memory for a run of pages that is being restored: one mapping, so that it stays one
// when it is moved into place piece by piece.
class Staging {
public:
    Staging() = default;
    ~Staging() { skip_to(end_); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Memory that stands for [address, end); it may be made for all up to `far_end`. 0: none.
    std::uint64_t provide(std::uint64_t address, std::uint64_t end, std::uint64_t far_end) noexcept;
    // That memory has been moved away.
    void moved(std::uint64_t length) noexcept;

private:
    void skip_to(std::uint64_t address) noexcept;

    std::uint64_t start_ = 0, end_ = 0;  // addresses that it is for
    std::uint64_t memory_ = 0;           // for start_
};

class Sharing {
public:
    static Sharing& instance() noexcept;

    int share(std::uint64_t address, std::uint64_t length, Purpose purpose, const OwnPages& own,
              Extents* out);
    void release(std::uint64_t ticket, const OwnPages& own);
    void throw_away(std::uint64_t start, std::uint64_t end);
    SharingCounters counters();
    bool owns_fd(int fd) const noexcept {
        return fd == space.fd() || fd == guard.fd() || fd == pagemap_.number() ||
               fd == task_.number() || fd == status_.number();
    }

    // Held by whoever uses anything below, and across fork.
    std::mutex mutex;
    // Held while pages are exchanged, under the mutex; and by SharingPause.
    ExchangeLock exchange_lock;

    AddressSpace space;
    WriteGuard guard;
    IntervalMap<Place> places;  // by address
    bool inherited = false;     // all below is the parent's: forget it; set in a forked child
    // By address, where fork does not copy: see keep_from_children().
    IntervalMap<bool> kept_from_children;
    const bool copies_on_fork = !options().device.has(DeviceTrait::kNoCopyOnFork);

    // [start, end), all of one place, has become private memory of this process.
    void replaced(std::uint64_t start, std::uint64_t end) { forget_place(start, end); }
    void keep_from_children_locked(std::uint64_t start, std::uint64_t end, bool keep);

    // In a forked child: the parent's descriptors and kernel objects. Async-signal-safe.
    void drop_inherited_files() noexcept;
    // The part of a mapping that is what `place` says: is it there, and how far does it reach?
    // *end: in, how far to look; out, up to where the answer holds.
    bool still_ours(std::uint64_t address, const Place& place, std::uint64_t* end,
                    Vma* vma) noexcept;
    // Copies a part of the arena to private memory at `to` (new, all zero); leaves out holes.
    static void copy_out(std::uint64_t offset, std::uint64_t length, std::uint64_t to) noexcept;

    // For tests.
    void set_policy(MemoryPolicy policy) noexcept { policy_ = policy; }

    // Any thread may write it.
    std::atomic<int> own_threads{0};

private:
    enum class Left { kNothing, kThisPage, kPiece };
    struct Outcome {
        std::uint64_t bytes;  // made shared, from the start
        Left left;            // what then stays private
    };
    // Pages of the arena set aside for a run of private pages that is being converted.
    struct Room {
        std::uint64_t start = 0, end = 0;  // addresses
        std::uint64_t delta = 0;
        unsigned stuck_pages = 0;  // that could not be held so far
    };

    void forget_inherited();
    bool alone() noexcept;
    bool kernel_pins() noexcept;

    // sharing.cc
    int check_mapped(std::uint64_t start, std::uint64_t end) noexcept;
    std::uint64_t share_step(std::uint64_t at, std::uint64_t end, Purpose purpose, bool writers,
                             const OwnPages& own, Room* room, Registration* made);
    bool adopt_shared(std::uint64_t at, std::uint64_t end, std::uint64_t delta, Purpose purpose,
                      Registration* made);
    bool convertible(const Vma& vma, std::uint64_t start, std::uint64_t end, Purpose purpose,
                     bool writers, const OwnPages& own);
    void free_room(Room* room) noexcept;

    // release.cc
    void drop_extents(const Registration& made, const OwnPages& own,
                      std::unique_lock<std::mutex>* lock);
    std::uint64_t retire(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                         std::uint64_t far_end, const OwnPages& own, Staging* staging);
    bool restore(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                 std::uint64_t far_end, const Vma& vma, const OwnPages& own, Staging* staging);
    void tend_idle(const OwnPages& own);

    // stale.cc
    // Calls visit(from, to, vma) for what the application sees shared of [start, end).
    template <typename Visit>
    void for_each_shared(std::uint64_t start, std::uint64_t end, const Visit& visit) {
        space.refresh();
        for (std::uint64_t at = start; at < end;) {
            const auto place = places.run_at(at);
            std::uint64_t stop = std::min(place.end, end);
            Vma vma;
            if (place.value.mapped && still_ours(at, place.value, &stop, &vma))
                visit(at, stop, vma);
            at = stop;
        }
    }
    void forget_place(std::uint64_t start, std::uint64_t end);
    void discard_offsets(std::uint64_t start, std::uint64_t end);
    void sweep_limbo();

    // exchange.cc
    Outcome make_shared(std::uint64_t address, std::uint64_t length, std::uint64_t offset,
                        bool writers) noexcept;
    bool make_private(std::uint64_t address, std::uint64_t length, std::uint64_t offset,
                      int protection, bool writers, std::uint64_t fresh) noexcept;
    struct DataRuns;
    bool copy_in(const WriteGuard::Held& held, bool plain, std::uint64_t offset, bool huge,
                 DataRuns* runs) noexcept;
    bool copy_pages(std::uint64_t source, std::uint64_t length, std::uint64_t offset, bool plain,
                    DataRuns* runs) noexcept;
    bool copy_run(std::uint64_t source, std::uint64_t length, std::uint64_t offset) noexcept;

    AdvisedPages advised_;
    IntervalMap<Use> uses_;            // by offset
    IntervalMap<std::uint32_t> left_;  // by address: registrations that left the page private
    IntervalMap<bool> idle_;           // by address: mapped, but without users
    IntervalMap<bool> limbo_;          // by offset: no users, but the application may have moved it
    std::uint64_t limbo_kept_ = 0;     // bytes that the last sweep found mapped elsewhere
    std::uint64_t limbo_bytes_ = 0;
    std::map<std::uint64_t, Registration, std::less<>,
             PoolAllocator<std::pair<const std::uint64_t, Registration>>>
        registrations_;  // by ticket
    std::uint64_t next_ticket_ = 1;
    std::uint64_t idle_next_ = 0;  // where tend_idle() goes on
    ProcFile pagemap_;
    ProcFile task_;
    ProcFile status_;
    SharingCounters counters_{};
    MemoryPolicy policy_;
    alignas(64) std::byte bounce_[64 << 10];  // of pages on their way into the arena

    Sharing() noexcept;
};

}  // namespace softhca::device::memory
