// SPDX-License-Identifier: BSD-2-Clause
// Holds writers back from pages while these are exchanged, by userfaultfd(2). There are three
// methods:
// - Private pages are moved out of the address space (UFFDIO_MOVE, Linux 6.8). A thread that
//   touches them waits. Pages that the kernel has pinned (direct I/O, process_vm_writev) cannot be
//   moved, so they are detected; the kernel would write them unseen.
// - Older kernels write-protect private pages (Linux 5.7). This does not detect pinned pages.
// - Shared pages are write-protected (Linux 5.19).
//
// Not thread-safe: the caller holds the sharing mutex. While pages are held the caller must touch
// neither them nor anything that might lie on them. So it uses no heap, takes no locks that other
// threads may hold while they wait for the pages, and blocks signals.
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

    // The most that hold() takes at once. It bounds how long a writer waits, and the memory in
    // flight.
    static constexpr std::uint64_t kMostBytes = 4ULL << 20;

    Reach reach() noexcept;
    // Whether hold() detects pinned pages.
    bool finds_pins() noexcept;
    bool holds_shared() noexcept;

    struct Held {
        std::uint64_t source;  // where the content can be read while the pages are held
        std::uint64_t bytes;   // from the start of the range; may be fewer than asked for
        bool stuck;            // the page behind these cannot be held; later ones may
    };
    // Holds private anonymous pages within one mapping, at most kMostBytes. `writers`: the process
    // has threads that may write. Without any, only pinned pages matter, and userfaultfd is not
    // needed. `pagemap`: open until the pages are held no more, or -1, which is slow.
    Held hold(std::uint64_t address, std::uint64_t length, bool writers, int pagemap) noexcept;
    // The held pages have been replaced by another mapping. Wakes the threads that wait for them.
    void replaced(std::uint64_t address, const Held& held) noexcept;
    // Undoes hold(): the pages are as before, and waiting threads continue.
    void put_back(std::uint64_t address, const Held& held) noexcept;

    // The same for pages of a shared mapping; it holds all of them or none.
    bool hold_shared(std::uint64_t address, std::uint64_t length) noexcept;
    void shared_replaced(std::uint64_t address, std::uint64_t length) noexcept;
    void shared_put_back(std::uint64_t address, std::uint64_t length) noexcept;

    int fd() const noexcept { return uffd_.get(); }
    // In a forked child: forgets the parent's descriptor and area. Async-signal-safe.
    void forget() noexcept;
    // For tests: behaves as if the system offered no more than this.
    void restrict(Reach reach, Means means) noexcept;

private:
    enum class HeldBy { kNothing, kMove, kProtection };

    bool open() noexcept;
    bool open_area() noexcept;
    bool register_range(std::uint64_t address, std::uint64_t length, std::uint64_t mode) noexcept;
    void unregister_range(std::uint64_t address, std::uint64_t length) noexcept;
    bool protect(std::uint64_t address, std::uint64_t length, bool on) noexcept;
    void wake(std::uint64_t address, std::uint64_t length) noexcept;
    // How much from that page on, which has no content, has none.
    std::uint64_t hole(std::uint64_t address, std::uint64_t length) const noexcept;
    // Moves pages, and leaves out those without content. Returns how many bytes, and stores in
    // *error why not all.
    std::uint64_t move(std::uint64_t to, std::uint64_t from, std::uint64_t length,
                       int* error) noexcept;
    Held hold_by_move(std::uint64_t address, std::uint64_t length) noexcept;
    Held hold_by_protection(std::uint64_t address, std::uint64_t length) noexcept;
    void discard_area() noexcept;

    OwnFd uffd_;
    std::uint64_t features_ = 0;
    Reach reach_ = Reach::kNothing;
    std::uint64_t area_ = 0;  // where moved pages stay: kMostBytes + 2 MiB
    bool tried_ = false;      // open() has tried to open uffd_
    Reach most_ = Reach::kAllStores;
    Means means_ = Means::kBest;
    HeldBy held_by_ = HeldBy::kNothing;  // how the current private range is held
    int pagemap_ = -1;                   // of hold()
};

}  // namespace softhca::device::memory
