// SPDX-License-Identifier: BSD-2-Clause
// mremap(2) on shared pages: see program_calls.h. The kernel moves each mapping in the range by
// itself. What the range grows by is private memory.
//
// The moves are system calls, and munmap or madvise tells other libraries of them: UCX before 1.14
// loses the new address of mremap.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>

#include <sys/mman.h>
#include <sys/syscall.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/program_calls.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

namespace {

void* refuse(int error) noexcept {
    errno = error;
    return MAP_FAILED;
}

struct Range {
    std::uint64_t start, end;
    std::uint64_t length() const noexcept { return end - start; }
    bool aligned() const noexcept { return start == round_down(start) && start < end; }
};

bool shows_shared(const Range& range) noexcept {
    return Sharing::instance().shows_shared(range.start, range.end);
}

// Locks the sharing mutex, so that no thread exchanges pages that move. Does not wait for ever for
// a thread that forks: that one may wait for an allocator's lock, which the caller of mremap()
// holds.
bool lock_sharing(std::unique_lock<std::mutex>* lock) noexcept {
    constexpr timespec kPause{0, 100'000};
    constexpr int kMostPauses = 10'000;  // one second or more
    for (int forking = 0; !lock->try_lock(); ::nanosleep(&kPause, nullptr))
        if (g_forking.load(std::memory_order_relaxed) && ++forking > kMostPauses) return false;
    return true;
}

// The mapping at an address. False if there is none. The caller holds the mutex, as it does for
// each function below that asks for mappings.
bool mapping_at(std::uint64_t address, Vma* vma) noexcept {
    Sharing::instance().space.refresh();
    return Sharing::instance().space.at(address, vma);
}

// Whether the range was one private mapping before we shared parts of it. *protection: its.
bool was_one_mapping(const Range& range, int* protection) noexcept {
    Vma vma;
    for (std::uint64_t at = range.start; at < range.end; at = vma.end) {
        if (!mapping_at(at, &vma)) return false;
        const bool arena = vma.shared && vma.inode == arena_inode() && vma.device == arena_device();
        if (!arena && (vma.shared || vma.inode != 0)) return false;
        if (at != range.start && vma.protection() != *protection) return false;
        *protection = vma.protection();
    }
    return true;
}

bool is_mapped(const Range& range) noexcept {
    Vma vma;
    for (std::uint64_t at = range.start; at < range.end; at = vma.end)
        if (!mapping_at(at, &vma)) return false;
    return true;
}

bool map_fresh(const Range& range, int protection, int flags, std::uint64_t* at) noexcept {
    void* const got = libc::mmap(pointer(range.start), range.length(), protection,
                                 MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    *at = reinterpret_cast<std::uint64_t>(got);
    return got != MAP_FAILED;
}

bool grow_in_place(const Range& more, int protection) noexcept {
    std::uint64_t at;
    if (!map_fresh(more, protection, MAP_FIXED_NOREPLACE, &at)) return false;
    if (at == more.start) return true;
    libc::munmap(pointer(at), more.length());  // a kernel that does not know the flag
    return false;
}

// Tries to move shared pages as mremap(2) with these flags does. `several`: they are mappings of
// different protection.
bool kernel_can_move(int flags, bool several) noexcept {
    const std::uint64_t page = page_bytes();
    void* const whole = libc::mmap(nullptr, 4 * page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return false;
    if (several) libc::mprotect(whole, page, PROT_NONE);
    void* const to = static_cast<std::byte*>(whole) + 2 * page;
    const bool moved = libc::mremap(whole, 2 * page, 2 * page, flags, to) == to;
    libc::munmap(whole, 4 * page);
    return moved;
}

// Whether the kernel can move a shared mapping and leave one at the old address (Linux 5.13). Then
// no other thread gets that address before we are done.
bool kernel_leaves_mappings() noexcept {
    static const bool answer =
        kernel_can_move(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, false);
    return answer;
}

// Whether the kernel moves several mappings by one call (Linux 6.17).
bool kernel_moves_several() noexcept {
    static const bool answer = kernel_can_move(MREMAP_MAYMOVE | MREMAP_FIXED, true);
    return answer;
}

// Moves what is mapped in the range. If that fails, all is as before.
bool move_mappings(const Range& range, std::uint64_t to) noexcept {
    const int flags =
        MREMAP_MAYMOVE | MREMAP_FIXED | (kernel_leaves_mappings() ? MREMAP_DONTUNMAP : 0);
    for (std::uint64_t at = range.start; at < range.end;) {
        Vma vma;
        const std::uint64_t end = mapping_at(at, &vma) ? std::min(vma.end, range.end) : at;
        if (end == at || libc::mremap(pointer(at), end - at, end - at, flags,
                                      pointer(to + (at - range.start))) == MAP_FAILED) {
            LOG_DEBUG("cannot move the mapping at %p: %s", pointer(at), strerrordesc_np(errno));
            if (at > range.start) move_mappings({to, to + (at - range.start)}, range.start);
            return false;
        }
        at = end;
    }
    return true;
}

// What move_mappings() has left at the old address becomes unmapped, or memory of zeros if `stays`.
// Libraries that watch the program's memory hear of it.
void clear_old_place(const Range& range, int protection, bool stays,
                     const Beneath& beneath) noexcept {
    std::uint64_t at;
    if (!stays && kernel_leaves_mappings()) {
        ::munmap(pointer(range.start), range.length());
    } else if (stays) {
        map_fresh(range, protection, kernel_leaves_mappings() ? MAP_FIXED : MAP_FIXED_NOREPLACE,
                  &at);
        beneath.advise(pointer(range.start), range.length(), MADV_DONTNEED);
    }
}

}  // namespace

void Sharing::moved(std::uint64_t from, std::uint64_t to, std::uint64_t length) {
    SOFTHCA_ASSERT(length > 0 && (from + length <= to || to + length <= from));
    forget_inherited();
    space.refresh();
    for (std::uint64_t at = to; at < to + length;) {  // what was there is gone
        const auto place = places.run_at(at);
        const std::uint64_t stop = std::min(place.end, to + length);
        if (place.value.mapped) forget_place(at, stop);
        at = stop;
    }
    for (std::uint64_t at = from; at < from + length;) {
        const auto place = places.run_at(at);
        const auto idle = idle_.run_at(at);
        std::uint64_t stop = std::min({place.end, idle.end, from + length});
        if (place.value.mapped) {
            const std::uint64_t now = to + (at - from);
            const Place there{true, at + place.value.delta - now};
            std::uint64_t end = now + (stop - at);
            Vma vma;
            const bool ours = still_ours(now, there, &end, &vma);
            stop = at + (end - now);
            if (ours) {
                const std::lock_guard viewing(view_lock);
                set_place(now, end, there);
                set_place(at, stop, Place{});
                any_moved_ = true;
                idle_.set(at, stop, false);
                idle_.set(now, end, idle.value);
            }
        }
        at = stop;
    }
}

void* remap(void* address, std::size_t old_length, std::size_t new_length, int flags,
            void* new_address, const Beneath& beneath) noexcept {
    const auto by_kernel = [&] {
        return beneath.remap(address, old_length, new_length, flags, new_address);
    };
    const auto start = reinterpret_cast<std::uint64_t>(address);
    const Range old{start, round_up(start + old_length)};
    const std::uint64_t length = round_up(new_length);
    constexpr int kKnown = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (!g_ever_shared.load(std::memory_order_seq_cst) || (flags & ~kKnown) || new_length == 0 ||
        length < new_length || start != round_down(start))
        return by_kernel();
    if (old_length == 0)  // this would map shared memory a second time
        return shows_shared({start, start + page_bytes()}) ? refuse(EINVAL) : by_kernel();
    if (!old.aligned() || old.length() < old_length) return by_kernel();
    const bool fixed = flags & MREMAP_FIXED, leaves = flags & MREMAP_DONTUNMAP;
    const bool may_move = flags & MREMAP_MAYMOVE;
    const Range target{reinterpret_cast<std::uint64_t>(new_address),
                       reinterpret_cast<std::uint64_t>(new_address) + length};
    // The kernel refuses these before it looks at the mappings.
    if ((fixed || leaves) && !may_move) return by_kernel();
    if (leaves && old.length() != length) return by_kernel();
    if (fixed && (!target.aligned() || (target.start < old.end && old.start < target.end)))
        return by_kernel();
    // Without another address, a range that does not grow loses its end.
    if (!fixed && !leaves && length <= old.length()) return by_kernel();
    if (!shows_shared(old)) {
        void* const result = by_kernel();
        // Pages that were shared once may have stayed mappings of their own, which the kernel does
        // not grow or move together.
        if (result != MAP_FAILED || errno != EFAULT) return result;
    }

    const Range kept{old.start, old.start + std::min(old.length(), length)};
    std::uint64_t now = 0;
    int protection = 0;
    {
        Sharing& sharing = Sharing::instance();
        std::unique_lock lock(sharing.mutex, std::defer_lock);
        if (!lock_sharing(&lock)) return refuse(ENOMEM);
        if (!was_one_mapping(old, &protection) && !(fixed && !leaves && length == old.length() &&
                                                    is_mapped(old) && kernel_moves_several()))
            return refuse(EFAULT);
        const bool locked = is_locked(old.end - page_bytes(), page_bytes());
        const auto lock_growth = [&](std::uint64_t at) {
            if (locked && length > old.length())
                lock_pages(SYS_mlock, at + old.length(), length - old.length());
        };
        if (!fixed && !leaves && grow_in_place({old.end, old.start + length}, protection)) {
            lock_growth(old.start);
            return address;
        }
        if (!may_move ||
            !map_fresh(fixed ? target : Range{0, length}, protection, fixed ? MAP_FIXED : 0, &now))
            return refuse(ENOMEM);
        if (!move_mappings(kept, now)) {
            libc::munmap(pointer(now), length);
            return refuse(ENOMEM);
        }
        lock_growth(now);
        try {
            sharing.moved(kept.start, now, kept.length());
        } catch (const std::bad_alloc&) {
            LOG_WARN_ONCE("cannot note where shared pages were moved: out of memory");
        }
    }
    clear_old_place(kept, protection, leaves, beneath);
    if (kept.end < old.end) ::munmap(pointer(kept.end), old.end - kept.end);
    return pointer(now);
}

}  // namespace softhca::device::memory
