// SPDX-License-Identifier: BSD-2-Clause
// The state of this process's shared pages, and the steps of share(), release() and fork. Internal
// to device/memory/.
//
// This state is no proof of what is mapped, because the application may have replaced any mapping
// without our seeing it. So each step first asks the kernel (AddressSpace). Nothing here uses the
// heap (pool_allocator.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "softhca/base/assert.h"
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

// Addresses that the calling thread needs while pages are exchanged: its stack, its thread-local
// storage (errno), and our own variables.
class OwnPages {
public:
    OwnPages() noexcept;  // for the caller and all functions that it calls
    bool meet(std::uint64_t start, std::uint64_t end) const noexcept {
        SOFTHCA_DEBUG_ASSERT(start < end);
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

// An address is mapped to the arena's offset address + delta (modulo 2^64).
struct Place {
    bool mapped = false;
    std::uint64_t delta = 0;
    bool operator==(const Place&) const = default;
};

// Whether this process shows pages of its arena, whether it or its parent ever did, and how often
// it has made such pages private again. The program's calls read them without a lock.
extern std::atomic<bool> g_any_shared;
extern std::atomic<bool> g_ever_shared;
extern std::atomic<std::uint64_t> g_restorations;
// A thread that forks holds the sharing mutex, and runs the fork handlers of other libraries.
extern std::atomic<bool> g_forking;

// Whether pages that the program discards are replaced. Otherwise they are emptied.
inline bool replaces_discarded() noexcept {
    static const bool answer = options().device.has(DeviceTrait::kPinned);
    return answer;
}
inline bool copies_on_fork() noexcept {
    static const bool answer = !options().device.has(DeviceTrait::kNoCopyOnFork);
    return answer;
}

// The use of an arena page that holds, or held, application memory.
struct PageUse {
    std::uint32_t users = 0;   // registrations
    bool application = false;  // an application's registration has used it since it became shared
    bool operator==(const PageUse&) const = default;
};

// One share() that has not been released yet.
struct Registration {
    std::uint64_t start = 0;  // the range that was asked for, in whole pages
    std::uint64_t end = 0;
    unsigned count = 0;
    Extent extent[kMaxExtents];

    // Calls visit(start, end) for the parts of the range that no extent covers.
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

// New private memory for a run of pages that is being restored. It is one mapping, so that it stays
// one when it is moved into place in several steps.
class Staging {
public:
    Staging() = default;
    ~Staging() { skip_to(end_); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    // Returns memory for [address, end), or 0 if there is none. It may be allocated up to
    // `far_end`.
    std::uint64_t provide(std::uint64_t address, std::uint64_t end, std::uint64_t far_end) noexcept;
    // The caller has moved that many bytes of the memory away.
    void moved(std::uint64_t length) noexcept;

private:
    void skip_to(std::uint64_t address) noexcept;

    std::uint64_t start_ = 0, end_ = 0;  // the addresses that the memory is for
    std::uint64_t memory_ = 0;           // the memory for start_
};

// Whether mlock(2) has locked the pages. The kernel answers this question without a search through
// smaps.
bool is_locked(std::uint64_t address, std::uint64_t length) noexcept;
// mlock(2) and munlock(2) as system calls, because sanitizers ignore the libc functions.
void lock_pages(long number, std::uint64_t address, std::uint64_t length) noexcept;

class Sharing {
public:
    static Sharing& instance() noexcept;

    int share(std::uint64_t address, std::uint64_t length, Purpose purpose, const OwnPages& own,
              Extents* out);
    void release(std::uint64_t ticket, const OwnPages& own);
    SharingCounters counters();
    bool owns_fd(int fd) const noexcept {
        return fd == space.fd() || fd == view_space.fd() || fd == guard.fd() ||
               fd == pagemap_.number() || fd == task_.number() || fd == status_.number();
    }

    // Any user of the members below holds it; a forking thread holds it across the fork.
    std::mutex mutex;
    // What is shown where: `places`, and what they lead to. A thread that changes it holds the
    // mutex and this lock, from before it exchanges pages until it has noted them. A thread that
    // only looks holds one of the two. An allocator's thread calls madvise(2) under locks that a
    // forking thread waits for, so it takes this one, which no thread holds across a fork.
    std::mutex view_lock;
    // Held, under the mutex, while pages are exchanged. SharingPause holds it without the mutex,
    // and a thread in one may use the heap, so the allocator may call madvise(2): this lock comes
    // before view_lock, and a thread that holds view_lock must not wait for it.
    ExchangeLock exchange_lock;

    AddressSpace space;
    WriteGuard guard;
    IntervalMap<Place> places;  // by address; changed by set_place()
    AddressSpace view_space;    // as `space`; its users hold view_lock
    // In a forked child: the members below are the parent's, and must be forgotten.
    bool inherited = false;
    // By address, on devices where fork does not copy: see keep_from_children().
    IntervalMap<bool> kept_from_children;

    // [start, end), which belongs to one Place, has become private memory of this process.
    void replaced(std::uint64_t start, std::uint64_t end) { forget_place(start, end); }
    void keep_from_children_locked(std::uint64_t start, std::uint64_t end, bool keep);

    // remap.cc: the program moved [from, +length) to `to`. The caller holds the mutex.
    void moved(std::uint64_t from, std::uint64_t to, std::uint64_t length);
    // Calls visit(from, to, vma) for the parts of [start, end) that are mapped to the arena. The
    // caller holds view_lock.
    template <typename Visit>
    void for_each_shown(std::uint64_t start, std::uint64_t end, const Visit& visit) {
        view_space.refresh();
        for_each_shared(&view_space, start, end, visit);
    }
    // Whether any part of [start, end) is mapped to the arena.
    bool shows_shared(std::uint64_t start, std::uint64_t end) noexcept {
        bool any = false;
        const std::lock_guard viewing(view_lock);
        for_each_shown(start, end,
                       [&any](std::uint64_t, std::uint64_t, const Vma&) { any = true; });
        return any;
    }

    // In a forked child: closes the parent's descriptors and kernel objects. Async-signal-safe.
    void drop_inherited_files() noexcept;
    // Whether the mapping at `address` is still what `place` says. *end is how far to look, and is
    // lowered to where the answer ends.
    bool still_ours(std::uint64_t address, const Place& place, std::uint64_t* end,
                    Vma* vma) noexcept {
        return shows(&space, address, place, end, vma);
    }
    // Whether the arena's page at address + delta holds memory of the program, rather than of
    // softhca. *end, an address, is lowered to where the answer ends.
    bool is_program_memory(std::uint64_t delta, std::uint64_t address,
                           std::uint64_t* end) const noexcept {
        const auto use = uses_.run_at(address + delta);
        const auto limbo = limbo_.run_at(address + delta);
        *end = std::min({*end + delta, use.end, limbo.end}) - delta;
        return limbo.value || use.value != PageUse{};
    }
    // Copies a part of the arena to the private memory at `to`, which is new and all zero. Holes
    // are skipped.
    static void copy_out(std::uint64_t offset, std::uint64_t length, std::uint64_t to) noexcept;

    // For tests.
    void set_policy(MemoryPolicy policy) noexcept { policy_ = policy; }

    // Any thread may write it.
    std::atomic<int> own_threads{0};

private:
    enum class Left { kNothing, kThisPage, kPiece };
    struct Outcome {
        std::uint64_t bytes;  // made shared, from the start of the range
        Left left;            // what stays private after these
    };
    // Pages of the arena that are reserved for a run of private pages under conversion.
    struct Room {
        std::uint64_t start = 0, end = 0;  // addresses
        std::uint64_t delta = 0;
        unsigned stuck_pages = 0;  // pages that could not be held so far
    };

    void forget_inherited();
    // The caller holds view_lock, too.
    void set_place(std::uint64_t start, std::uint64_t end, const Place& place) {
        places.set(start, end, place);
        if (place.mapped) g_ever_shared.store(true, std::memory_order_seq_cst);
        g_any_shared.store(!places.empty(), std::memory_order_seq_cst);
    }
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
    bool retire_moved(std::uint64_t offset, std::uint64_t* end, const OwnPages& own);
    std::uint64_t retire(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                         std::uint64_t far_end, const OwnPages& own, Staging* staging);
    bool restore(std::uint64_t address, std::uint64_t end, std::uint64_t delta,
                 std::uint64_t far_end, const Vma& vma, const OwnPages& own, Staging* staging);
    void tend_idle(const OwnPages& own);
    void tend_left(std::uint64_t start, std::uint64_t end, const OwnPages& own);

    // stale.cc
    static bool shows(AddressSpace* in, std::uint64_t address, const Place& place,
                      std::uint64_t* end, Vma* vma) noexcept;
    template <typename Visit>
    void for_each_shared(AddressSpace* in, std::uint64_t start, std::uint64_t end,
                         const Visit& visit) {
        for (std::uint64_t at = start; at < end;) {
            const auto place = places.run_at(at);
            std::uint64_t stop = std::min(place.end, end);
            Vma vma;
            if (place.value.mapped && shows(in, at, place.value, &stop, &vma)) visit(at, stop, vma);
            at = stop;
        }
    }
    void forget_place(std::uint64_t start, std::uint64_t end);
    void discard_offsets(std::uint64_t start, std::uint64_t end);
    void sweep_limbo();

    // exchange.cc. The caller holds exchange_lock and view_lock.
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
    IntervalMap<PageUse> uses_;        // by offset
    IntervalMap<std::uint32_t> left_;  // by address: registrations that left the page private
    IntervalMap<bool> idle_;           // by address: mapped, but without users
    IntervalMap<bool> limbo_;          // by offset: no users, but perhaps mapped elsewhere
    bool any_moved_ = false;           // pages may be shown at other addresses than registered
    std::uint64_t limbo_kept_ = 0;     // bytes that the last sweep found mapped elsewhere
    std::uint64_t limbo_bytes_ = 0;    // bytes in limbo_, or more
    std::map<std::uint64_t, Registration, std::less<>,
             PoolAllocator<std::pair<const std::uint64_t, Registration>>>
        registrations_;  // by ticket
    std::uint64_t next_ticket_ = 1;
    std::uint64_t idle_next_ = 0;  // where tend_idle() continues
    ProcFile pagemap_;
    ProcFile task_;
    ProcFile status_;
    SharingCounters counters_{};
    MemoryPolicy policy_;
    alignas(64) std::byte bounce_[64 << 10];  // buffer for pages on their way into the arena

    Sharing() noexcept;
};

}  // namespace softhca::device::memory
