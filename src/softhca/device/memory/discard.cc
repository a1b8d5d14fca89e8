// SPDX-License-Identifier: BSD-2-Clause
// madvise(2) on shared pages: see program_calls.h.

#include <cerrno>
#include <cstring>
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

// Advice of Linux 5.18 and 6.13, which some distributions' headers lack.
constexpr int kMadvDontneedLocked = 24, kMadvGuardInstall = 102;

// The pages of [address, +length), if the kernel accepts such a range.
struct Pages {
    Pages(void* address, std::size_t length) noexcept
        : start(reinterpret_cast<std::uint64_t>(address)), end(round_up(start + length)) {
        valid = start == round_down(start) && start < end && end - start >= length;
    }
    std::uint64_t start, end;
    bool valid;
};

bool any_shared() noexcept { return g_any_shared.load(std::memory_order_seq_cst); }

template <typename Visit>
void for_each_shown(const Pages& pages, const Visit& visit) noexcept {
    if (!any_shared() || !pages.valid) return;
    Sharing& sharing = Sharing::instance();
    const std::lock_guard viewing(sharing.view_lock);
    sharing.for_each_shown(pages.start, pages.end, visit);
}

bool shows_shared(const Pages& pages) noexcept {
    return any_shared() && pages.valid && Sharing::instance().shows_shared(pages.start, pages.end);
}

// The kernel has discarded what is private. The caller holds view_lock.
void discard_shown(std::uint64_t start, std::uint64_t end, std::uint64_t offset,
                   int protection) noexcept {
    if (!replaces_discarded()) {
        arena_empty(offset, end - start);
        return;
    }
    // The note of what is shown here becomes stale, as by an mmap that we do not see.
    const bool locked = is_locked(start, end - start);
    if (libc::mmap(pointer(start), end - start, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0) == MAP_FAILED)
        LOG_WARN_ONCE("cannot discard pages: %s", strerrordesc_np(errno));
    else if (locked)
        lock_pages(SYS_mlock, start, end - start);
}

int discard(void* address, std::size_t length, int advice, AdviseFunction* next) noexcept {
    const Pages pages(address, length);
    for (AdviseFunction* call = next;; call = libc::madvise) {
        // Pages that are being made private while the kernel discards them may keep their content.
        // So afterwards the kernel is asked again if any were.
        const std::uint64_t restorations = g_restorations.load(std::memory_order_seq_cst);
        const auto restored = [restorations] {
            return restorations != g_restorations.load(std::memory_order_seq_cst);
        };
        int result = call(address, length, advice);
        int error = errno;
        if (result != 0 && error == EINVAL && advice == MADV_FREE &&
            (shows_shared(pages) || restored())) {
            // The kernel may free such pages at any time, and so do we at once.
            advice = MADV_DONTNEED;
            result = call(address, length, advice);
            error = errno;
        }
        errno = error;
        // After ENOMEM, all that is mapped has been discarded.
        if (result != 0 && error != ENOMEM) return result;
        bool again = restored();
        if (any_shared() && pages.valid) {
            Sharing& sharing = Sharing::instance();
            const std::lock_guard viewing(sharing.view_lock);
            again = restored();
            if (!again)
                sharing.for_each_shown(pages.start, pages.end,
                                       [](std::uint64_t from, std::uint64_t to, const Vma& vma) {
                                           discard_shown(from, to, vma.offset + (from - vma.start),
                                                         vma.protection());
                                       });
        }
        errno = error;
        if (!again) return result;
    }
}

}  // namespace

int advise(void* address, std::size_t length, int advice, const Beneath& beneath) noexcept {
    AdviseFunction* const next = beneath.advise;
    note_advice(advice);
    switch (advice) {
        case MADV_DONTNEED:
        case MADV_FREE:
        case kMadvDontneedLocked:
        case kMadvGuardInstall:
            return discard(address, length, advice, next);
        case MADV_REMOVE:
            if (!shows_shared(Pages(address, length))) break;
            errno = EINVAL;  // only memory that was mapped shared has a file to remove pages from
            return -1;
        case MADV_DONTFORK:
        case MADV_DOFORK: {
            const int result = next(address, length, advice);
            const int error = errno;
            if (result == 0 && !copies_on_fork())
                keep_from_children(reinterpret_cast<std::uint64_t>(address), length,
                                   advice == MADV_DONTFORK);
            // Shared pages are never inherited, whatever the program advises for its own.
            for_each_shown(Pages(address, length),
                           [](std::uint64_t from, std::uint64_t to, const Vma&) {
                               libc::madvise(pointer(from), to - from, MADV_DONTFORK);
                           });
            errno = error;
            return result;
        }
        default:
            break;
    }
    return next(address, length, advice);
}

}  // namespace softhca::device::memory
