// SPDX-License-Identifier: BSD-2-Clause
// Decides what part of a range to share, and counts its users: see sharing.h. exchange.cc exchanges
// the pages.

#include "softhca/device/memory/sharing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/sharing_state.h"

// Defined by the linker: the zero-initialised variables of this library (or program).
extern "C" [[gnu::visibility("hidden")]] std::byte __bss_start, _end;

namespace softhca::device::memory {

constinit std::atomic<bool> g_any_shared{false};
constinit std::atomic<bool> g_ever_shared{false};
constinit std::atomic<std::uint64_t> g_restorations{0};
constinit std::atomic<bool> g_forking{false};

namespace {

// Each Place can cost four mappings, and a process may have 65530 by default (vm.max_map_count).
// The application needs some, too.
constexpr std::size_t kMostPlaces = 8192;

constexpr unsigned kMostStuckPages = 32;  // in one share()

constexpr std::uint64_t kThreadHeapBytes = 64ULL << 20;  // glibc's HEAP_MAX_SIZE, and its alignment
constexpr std::uint64_t kMostGuardBytes = 256ULL << 10;  // of a thread's stack

void append(Registration* made, std::uint64_t address, std::uint64_t length, std::uint64_t offset) {
    if (made->count > 0) {
        Extent& last = made->extent[made->count - 1];
        if (last.address + last.length == address && last.offset + last.length == offset) {
            last.length += length;
            return;
        }
    }
    SOFTHCA_ASSERT(made->count < kMaxExtents && length > 0);
    made->extent[made->count++] = {address, length, offset};
}

bool can_append(const Registration& made, std::uint64_t address, std::uint64_t offset) {
    if (made.count < kMaxExtents) return true;
    SOFTHCA_ASSERT(made.count == kMaxExtents);
    const Extent& last = made.extent[made.count - 1];
    return last.address + last.length == address && last.offset + last.length == offset;
}

}  // namespace

OwnPages::OwnPages() noexcept {
    constexpr std::uint64_t kDeepest = 128ULL << 10;
    const auto frame = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
    // One page above the frame is the frame of the function that keeps this object.
    stack_ = {round_down(frame - kDeepest), round_up(frame) + page_bytes()};
    const auto error = reinterpret_cast<std::uint64_t>(&errno);
    const auto thread = reinterpret_cast<std::uint64_t>(::pthread_self());
    local_ = {std::min(error, thread), std::max(error, thread) + 64};
    variables_ = {reinterpret_cast<std::uint64_t>(&__bss_start),
                  reinterpret_cast<std::uint64_t>(&_end)};
}

Sharing::Sharing() noexcept
    : pagemap_("/proc/thread-self/pagemap", O_RDONLY),
      task_("/proc/self/task", O_RDONLY | O_DIRECTORY),
      status_("/proc/self/status", O_RDONLY),
      policy_(options().memory) {}

// Never destroyed, because threads may still use it while the process exits.
Sharing& Sharing::instance() noexcept {
    alignas(Sharing) static std::byte storage[sizeof(Sharing)];
    static Sharing* const sharing = new (storage) Sharing;
    return *sharing;
}

void Sharing::forget_inherited() {
    if (!inherited) return;
    {
        const std::lock_guard viewing(view_lock);
        places.clear();
        g_any_shared.store(false, std::memory_order_seq_cst);
    }
    any_moved_ = false;
    uses_.clear();
    left_.clear();
    idle_.clear();
    limbo_.clear();
    limbo_bytes_ = limbo_kept_ = 0;
    // The ticket numbers continue, so a parent's ticket is never valid here.
    registrations_.clear();
    counters_ = {};
    inherited = false;
}

void Sharing::drop_inherited_files() noexcept {
    g_any_shared.store(false, std::memory_order_seq_cst);
    new (&view_lock) std::mutex;  // a thread that is not in the child may have held it
    space.close();
    view_space.close();
    guard.forget();
    pagemap_.close();
    task_.close();
    status_.close();
    own_threads.store(0, std::memory_order_relaxed);
    inherited = true;
}

// Whether this is the only thread that can write application memory. Kernel threads that serve
// io_uring are counted, too.
bool Sharing::alone() noexcept {
    struct stat status;
    const int fd = task_.get();
    // A directory has two links more than it has subdirectories. File systems that do not count
    // them report 1.
    if (fd < 0 || libc::fstat(fd, &status) != 0 || status.st_nlink < 3) return false;
    return static_cast<long>(status.st_nlink) - 2 - own_threads.load(std::memory_order_relaxed) <=
           1;
}

// Whether the kernel has pinned pages of this process for longer (buffers registered with io_uring,
// hardware drivers). It writes to such pages unseen.
bool Sharing::kernel_pins() noexcept {
    char text[2048];
    const int fd = status_.get();
    if (fd < 0) return true;
    const ssize_t size = libc::pread(fd, text, sizeof text - 1, 0);
    if (size <= 0) return true;
    text[size] = 0;
    const char* const line = std::strstr(text, "\nVmPin:");
    return !line || std::strtoul(line + 7, nullptr, 10) != 0;
}

int Sharing::check_mapped(std::uint64_t start, std::uint64_t end) noexcept {
    if (!space.available()) {
        // Any system answers this much. Nothing will be shared.
        const bool unmapped = ::syscall(SYS_msync, start, end - start, MS_ASYNC) != 0;
        return unmapped && errno == ENOMEM ? EFAULT : 0;
    }
    Vma vma;
    for (std::uint64_t at = start; at < end; at = vma.end)
        if (!space.at(at, &vma) || !(vma.readable || vma.writable)) return EFAULT;
    return 0;
}

bool Sharing::convertible(const Vma& vma, std::uint64_t start, std::uint64_t end, Purpose purpose,
                          bool writers, const OwnPages& own) {
    if (!vma.plain() || main_stack(vma) || own.meet(start, end) || advised_.meet(start, end))
        return false;
    if (places.boundaries() >= 2 * kMostPlaces) return false;
    // Peers may be copying into pages that a live registration left private. The kernel pins those
    // during the copy, and writes to them whatever is then mapped in their place.
    const auto left = left_.run_at(start);
    if ((left.value > 0 || left.end < end) &&
        !(guard.reach() == WriteGuard::Reach::kAllStores && guard.finds_pins()))
        return false;
    if (!guard.finds_pins() && kernel_pins()) return false;
    if (writers && purpose == Purpose::kApplication &&
        guard.reach() != WriteGuard::Reach::kAllStores)
        return false;
    // The stack of another thread holds data that the C library needs in a forked child before any
    // handler of ours runs. A stack begins above a small inaccessible mapping. So do the heaps that
    // glibc creates for threads, but these are aligned.
    Vma below;
    if (vma.start % kThreadHeapBytes != 0 && space.at(vma.start - 1, &below) &&
        below.protection() == PROT_NONE && below.inode == 0 && !below.shared &&
        below.end - below.start <= kMostGuardBytes)
        return false;
    return true;
}

void Sharing::free_room(Room* room) noexcept {
    SOFTHCA_ASSERT(room->start <= room->end);
    if (room->end > room->start) arena_free(room->start + room->delta, room->end - room->start);
    room->start = room->end = 0;
}

// Counts one more user of [at, end), which is already shared.
bool Sharing::adopt_shared(std::uint64_t at, std::uint64_t end, std::uint64_t delta,
                           Purpose purpose, Registration* made) {
    if (!can_append(*made, at, at + delta)) return false;
    const bool application = purpose == Purpose::kApplication;
    uses_.update(at + delta, end + delta, [application](PageUse& use) {
        SOFTHCA_ASSERT(use.users < ~std::uint32_t{0});
        ++use.users;
        use.application |= application;
    });
    append(made, at, end - at, at + delta);
    idle_.set(at, end, false);
    return true;
}

// Shares the first part of [at, end), or leaves it private. Returns the end of that part.
std::uint64_t Sharing::share_step(std::uint64_t at, std::uint64_t end, Purpose purpose,
                                  bool writers, const OwnPages& own, Room* room,
                                  Registration* made) {
    SOFTHCA_ASSERT(at < end && at % page_bytes() == 0);
    Vma vma;
    const auto place = places.run_at(at);
    if (place.value.mapped) {
        std::uint64_t stop = std::min(place.end, end);
        if (still_ours(at, place.value, &stop, &vma))
            adopt_shared(at, stop, place.value.delta, purpose, made);
        else
            forget_place(at, stop);  // then look again at what is mapped there now
        return places.at(at).mapped ? stop : at;
    }
    if (!space.at(at, &vma)) return end;  // it was unmapped since the check
    const std::uint64_t stop = std::min({place.end, end, vma.end});
    if (!convertible(vma, at, stop, purpose, writers, own)) return stop;
    if (at >= room->start && at < room->end) {
        if (at > room->start) arena_free(room->start + room->delta, at - room->start);
        room->start = at;  // another thread has shared the part before it in the meantime
    } else {
        free_room(room);
        // Prefer the offset where the pages before it end: neighbours then form one extent.
        const Place before = places.at(at - 1);
        const std::uint64_t hint = before.mapped ? at + before.delta : kNoOffset;
        const std::uint64_t offset = arena_take(stop - at, hint, at);
        if (offset == kNoOffset) return stop;
        *room = {at, stop, offset - at};
    }
    if (!can_append(*made, at, at + room->delta)) return stop;
    const std::uint64_t delta = room->delta;
    const std::uint64_t piece_end =
        std::min({stop, room->end, ((at + WriteGuard::kMostBytes) & ~(kHugeBytes - 1))});
    const bool guarded = writers && (purpose == Purpose::kApplication ||
                                     guard.reach() != WriteGuard::Reach::kNothing);
    Outcome outcome;
    {
        const std::lock_guard exchanging(exchange_lock);
        const std::lock_guard viewing(view_lock);
        // This is noted before the exchange, while memory can be allocated. If the exchange fails
        // and the note cannot be removed, a later check finds the stale place.
        set_place(at, piece_end, {true, delta});
        outcome = make_shared(at, piece_end - at, at + delta, guarded);
        SOFTHCA_ASSERT(outcome.bytes <= piece_end - at && outcome.bytes % page_bytes() == 0);
        if (outcome.bytes < piece_end - at) set_place(at + outcome.bytes, piece_end, Place{});
    }
    const std::uint64_t shared_end = at + outcome.bytes;
    if (outcome.bytes > 0) adopt_shared(at, shared_end, delta, purpose, made);
    room->start = shared_end;
    switch (outcome.left) {
        case Left::kNothing:
            // realloc() of a large block is mremap(), which would let the mapping grow over the
            // arena pages that follow. mremap() refuses ranges of more than one mapping. This
            // advice has no effect on memory, but splits the range into two mappings.
            if (shared_end == stop && purpose == Purpose::kApplication)
                libc::madvise(reinterpret_cast<void*>(stop - page_bytes()), page_bytes(),
                              MADV_RANDOM);
            return shared_end;
        case Left::kThisPage:
            arena_free(shared_end + delta, page_bytes());
            room->start += page_bytes();
            // Finding each of very many stuck pages takes long, so beyond the limit the rest stays
            // private.
            if (++room->stuck_pages < kMostStuckPages) return room->start;
            break;
        case Left::kPiece:
            break;
    }
    return stop;
}

int Sharing::share(std::uint64_t address, std::uint64_t length, Purpose purpose,
                   const OwnPages& own, Extents* out) {
    Registration made;
    made.start = round_down(address);
    made.end = round_up(address + length);
    Room room;
    std::unique_lock lock(mutex);
    forget_inherited();
    space.refresh();
    if (const int error = check_mapped(made.start, made.end)) return error;
    const std::uint64_t ticket = next_ticket_++;
    tend_idle(own);
    const bool wanted =
        arena_base() && (purpose == Purpose::kQueue ||
                         (purpose == Purpose::kApplication && policy_ == MemoryPolicy::kAuto));
    const bool writers = wanted && !alone();
    if (wanted) advised_.refresh();
    try {
        for (std::uint64_t at = made.start; wanted && at < made.end;) {
            at = share_step(at, made.end, purpose, writers, own, &room, &made);
            // Other threads may run between two steps of a large range.
            if (at < made.end) {
                lock.unlock();
                lock.lock();
                space.refresh();
            }
        }
        free_room(&room);
        made.for_each_left([this](std::uint64_t start, std::uint64_t end) {
            left_.update(start, end, [](std::uint32_t& count) {
                ++count;
                SOFTHCA_ASSERT(count > 0);
            });
        });
        registrations_.emplace(ticket, made);
    } catch (const std::bad_alloc&) {
        free_room(&room);
        drop_extents(made, own, &lock);
        return ENOMEM;
    }
    out->count = made.count;
    out->complete = made.count > 0;
    made.for_each_left([out](std::uint64_t, std::uint64_t) { out->complete = false; });
    out->ticket = ticket;
    std::copy_n(made.extent, made.count, out->extent);
    if (!out->complete) ++counters_.left_private;
    return 0;
}

SharingCounters Sharing::counters() {
    std::lock_guard lock(mutex);
    forget_inherited();
    SharingCounters result = counters_;
    places.for_each([&result](const IntervalMap<Place>::Run& run) {
        ++result.segments;
        result.shared_bytes += run.end - run.start;
    });
    idle_.for_each(
        [&result](const IntervalMap<bool>::Run& run) { result.idle_bytes += run.end - run.start; });
    return result;
}

int share(std::uint64_t address, std::uint64_t length, Purpose purpose, Extents* out) noexcept {
    *out = {};
    out->address = address;
    out->length = length;
    if (length == 0 || address + length < address || round_up(address + length) < address + length)
        return EINVAL;
    arena_open();  // if it fails, nothing is shared
    const OwnPages own;
    try {
        return Sharing::instance().share(address, length, purpose, own, out);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

void release(const Extents& extents) noexcept {
    if (extents.ticket == 0) return;
    const OwnPages own;
    try {
        Sharing::instance().release(extents.ticket, own);
    } catch (const std::bad_alloc&) {
        LOG_WARN_ONCE("cannot make pages private again: out of memory");
    }
}

void Sharing::keep_from_children_locked(std::uint64_t start, std::uint64_t end, bool keep) {
    forget_inherited();
    kept_from_children.set(start, end, keep);
}

void keep_from_children(std::uint64_t address, std::uint64_t length, bool keep) noexcept {
    if (length == 0 || round_up(address + length) < address) return;
    Sharing& sharing = Sharing::instance();
    try {
        const std::lock_guard lock(sharing.mutex);
        sharing.keep_from_children_locked(address, round_up(address + length), keep);
    } catch (const std::bad_alloc&) {
        LOG_WARN_ONCE("cannot note which pages children do not inherit: out of memory");
    }
}

void set_own_threads(int threads) noexcept {
    Sharing::instance().own_threads.store(threads, std::memory_order_relaxed);
}

SharingPause::SharingPause() noexcept { Sharing::instance().exchange_lock.lock_shyly(); }
SharingPause::~SharingPause() { Sharing::instance().exchange_lock.unlock(); }

SharingCounters sharing_counters() noexcept { return Sharing::instance().counters(); }

bool owns_fd(int fd) noexcept {
    Sharing& sharing = Sharing::instance();
    return fd >= 0 && (fd == arena_fd() || sharing.owns_fd(fd));
}

}  // namespace softhca::device::memory
