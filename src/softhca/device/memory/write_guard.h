// SPDX-License-Identifier: BSD-2-Clause
// Holds writers back from pages while these are exchanged: userfaultfd(2).
//
// Private pages are best taken out of the address space altogether (UFFDIO_MOVE, Linux 6.8):
// whoever touches them then waits, and pages that the kernel has pinned (direct I/O,
// process_vm_writev), which it would write behind everybody's back, cannot be moved and so are
// found out. Older kernels write-protect them (5.7), which does not find pinned ones. Shared pages
// are write-protected (5.19).
//
// Not thread-safe: callers hold the sharing mutex. While pages are held the caller must not touch
// them, nor anything that might be on them: no heap, no locks that others may hold while they wait
// for the pages. It blocks signals, too.
#pragma once

#include <cstdint>

#include "softhca/device/memory/own_fds.h"

namespace softhca::device::memory {

class WriteGuard {
public:
    enum class Reach {
        kNothing,     // no userfaultfd
        kUserStores,  // system calls that store into held pages fail with EFAULT
        kAllStores,
    };
    enum class Means { kBest, kWriteProtect, kPopulatedWriteProtect, kNone };

    // The most that hold() takes at once: bounds how long a writer waits, and the memory in flight.
    static constexpr std::uint64_t kMostBytes = 4ULL << 20;

    Reach reach() noexcept;
    // Does hold() find out pinned pages?
    bool finds_pins() noexcept;
    bool holds_shared() noexcept;

    struct Held {
        std::uint64_t source;  // where the content can be read meanwhile
        std::uint64_t bytes;   // from the start of the range; may be fewer than asked for
        bool stuck;            // the page after these cannot be held; later ones may
    };
    // Holds private anonymous pages, within one mapping, at most kMostBytes. `writers`: the process
    // has threads that may write; without, only pinned pages matter, and userfaultfd is not needed.
    Held hold(std::uint64_t address, std::uint64_t length, bool writers) noexcept;
    // The held pages have been replaced by another mapping: whoever waited may go on.
    void replaced(std::uint64_t address, const Held& held) noexcept;
    // They have not: all is as before.
    void put_back(std::uint64_t address, const Held& held) noexcept;

    // The same for pages of a shared mapping; all or nothing.
    bool hold_shared(std::uint64_t address, std::uint64_t length) noexcept;
    void shared_replaced(std::uint64_t address, std::uint64_t length) noexcept;
    void shared_put_back(std::uint64_t address, std::uint64_t length) noexcept;

    int fd() const noexcept { return uffd_.get(); }
    // In a forked child: the parent's descriptor and area are not ours. Async-signal-safe.
    void forget() noexcept;
    // For tests: pretends that the system offers no more than this.
    void restrict(Reach reach, Means means) noexcept;

private:
    enum class HeldBy { kNothing, kMove, kProtection };

    bool open() noexcept;
    bool open_area() noexcept;
    bool register_range(std::uint64_t address, std::uint64_t length, std::uint64_t mode) noexcept;
    void unregister_range(std::uint64_t address, std::uint64_t length) noexcept;
    bool protect(std::uint64_t address, std::uint64_t length, bool on) noexcept;
    void wake(std::uint64_t address, std::uint64_t length) noexcept;
    // Moves pages; returns how many bytes, and in *error why not all.
    std::uint64_t move(std::uint64_t to, std::uint64_t from, std::uint64_t length,
                       int* error) noexcept;
    Held hold_by_move(std::uint64_t address, std::uint64_t length) noexcept;
    Held hold_by_protection(std::uint64_t address, std::uint64_t length) noexcept;
    void discard_area() noexcept;

    OwnFd uffd_;
    std::uint64_t features_ = 0;
    Reach reach_ = Reach::kNothing;
    std::uint64_t area_ = 0;  // where moved pages stay meanwhile; as large as kMostBytes + 2 MiB
    bool tried_ = false;      // to open uffd_
    Reach most_ = Reach::kAllStores;
    Means means_ = Means::kBest;
    HeldBy held_by_ = HeldBy::kNothing;  // the private range that is held now
};

}  // namespace softhca::device::memory
