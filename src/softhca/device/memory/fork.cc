// SPDX-License-Identifier: BSD-2-Clause
// fork(2) with shared segments. The segments are not inherited (MADV_DONTFORK), so a child cannot
// write to its parent's memory, however it was created. For fork() of the C library we copy the
// segments to private memory before the fork. The child moves the copies to where the segments
// were.
//
// The child needs them early. Before any handler of ours runs, the C library resets locks that lie
// on the heap (of FILEs and of threads' heaps), and other libraries run their handlers. So during a
// fork a SIGSEGV handler is installed, which puts the copies in place at the first access. For the
// same reason nothing here allocates, and the list of copies has pages of its own.

#include "softhca/device/memory/fork.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include <pthread.h>
#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

namespace {

struct Copy {
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t memory;
    bool noted;  // in `places`
};

// The state of the current fork. The forking thread writes it under the sharing mutex, and the
// handler in its child reads it.
struct Fork {
    Copy* copies;
    std::size_t count;
    std::size_t capacity;
    pid_t parent;
    bool placed;
    bool net;              // the handler is installed
    struct sigaction old;  // the application's
    sigset_t mask;
};
Fork g_fork;

bool add_copy(const Copy& copy) noexcept {
    SOFTHCA_ASSERT(g_fork.count <= g_fork.capacity && copy.length > 0);
    if (g_fork.count == g_fork.capacity) {
        const std::size_t old_bytes = g_fork.capacity * sizeof(Copy);
        const std::size_t bytes = std::max<std::size_t>(2 * old_bytes, page_bytes() * 4);
        void* const grown = old_bytes == 0
                                ? libc::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                : libc::mremap(g_fork.copies, old_bytes, bytes, MREMAP_MAYMOVE);
        if (grown == MAP_FAILED) return false;
        g_fork.copies = static_cast<Copy*>(grown);
        g_fork.capacity = bytes / sizeof(Copy);
    }
    SOFTHCA_ASSERT(g_fork.count < g_fork.capacity);
    g_fork.copies[g_fork.count++] = copy;
    return true;
}

bool copy_segment(std::uint64_t address, std::uint64_t end, std::uint64_t offset, int protection,
                  bool noted) noexcept {
    SOFTHCA_ASSERT(address < end);
    const std::uint64_t length = end - address;
    void* const memory = libc::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    const auto at = reinterpret_cast<std::uint64_t>(memory);
    Sharing::copy_out(offset, length, at);
    if (protection != (PROT_READ | PROT_WRITE)) libc::mprotect(memory, length, protection);
    if (add_copy({address, length, at, noted})) return true;
    libc::munmap(memory, length);
    return false;
}

void take_copies(const OwnPages& own) noexcept {
    Sharing& sharing = Sharing::instance();
    bool complete = true;
    bool on_stack = false;
    // The kernel is asked for all mappings of the arena, because the program may have moved some.
    const auto window = reinterpret_cast<std::uint64_t>(arena_base());
    Vma vma;
    sharing.space.refresh();
    for (std::uint64_t next = 0; sharing.space.find_shared_file(next, &vma); next = vma.end) {
        if (vma.inode != arena_inode() || vma.device != arena_device()) continue;
        if (vma.start >= window && vma.end <= window + arena_bytes()) continue;
        for (std::uint64_t at = vma.start; at < vma.end;) {
            const auto kept = sharing.kept_from_children.run_at(at);
            const auto place = sharing.places.run_at(at);
            const std::uint64_t offset = vma.offset + (at - vma.start);
            const bool noted = place.value == Place{true, offset - at};
            std::uint64_t end = std::min({vma.end, kept.end, place.end});
            if (kept.value || !(noted || sharing.is_program_memory(offset - at, at, &end))) {
            } else if (own.meet_stack(at, end)) {
                on_stack = true;
            } else {
                complete &= copy_segment(at, end, offset, vma.protection(), noted);
            }
            at = end;
        }
    }
    if (!complete)
        LOG_ERROR("fork: out of memory for copies of registered memory; the child misses some");
    // fork() will still write to this stack after the copy, so it cannot be copied. Without a stack
    // the child ends at once.
    if (on_stack)
        LOG_ERROR("fork: this thread's stack is registered memory, so the child cannot run");
}

// Runs in the child, and makes only system calls.
void place_copies() noexcept {
    if (g_fork.placed) return;
    g_fork.placed = true;
    for (std::size_t i = 0; i < g_fork.count; ++i) {
        const Copy& copy = g_fork.copies[i];
        // Since the fork another mapping may have taken the address.
        void* const wanted = reinterpret_cast<void*>(copy.address);
        void* const got =
            libc::mmap(wanted, copy.length, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (got != wanted ||
            libc::mremap(reinterpret_cast<void*>(copy.memory), copy.length, copy.length,
                         MREMAP_MAYMOVE | MREMAP_FIXED, wanted) == MAP_FAILED)
            LOG_ERROR("fork: the child misses registered memory at %p: %s", wanted,
                      strerrordesc_np(errno));
    }
}

void on_segmentation_fault(int, siginfo_t* info, void*) noexcept {
    const auto at = reinterpret_cast<std::uint64_t>(info->si_addr);
    if (info->si_code == SEGV_MAPERR && libc::getpid() != g_fork.parent && !g_fork.placed) {
        for (std::size_t i = 0; i < g_fork.count; ++i) {
            if (at - g_fork.copies[i].address >= g_fork.copies[i].length) continue;
            place_copies();
            return;
        }
    }
    // The fault is not at a copy. Restore the application's handler: it runs when the instruction
    // repeats. If a process sent the signal, send it again.
    sigaction(SIGSEGV, &g_fork.old, nullptr);
    if (info->si_code <= 0) raise(SIGSEGV);
}

void install_net() noexcept {
    SOFTHCA_ASSERT(!g_fork.net);
    sigset_t fault;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &fault, &g_fork.mask);
    struct sigaction action {};
    action.sa_sigaction = on_segmentation_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    g_fork.net = sigaction(SIGSEGV, &action, &g_fork.old) == 0;
}

void remove_net() noexcept {
    if (!g_fork.net) return;
    g_fork.net = false;
    sigaction(SIGSEGV, &g_fork.old, nullptr);
    pthread_sigmask(SIG_SETMASK, &g_fork.mask, nullptr);
}

// Runs in the parent, on devices where fork does not copy: there the kernel leaves the pages that
// the device knows to the child, and gives the parent new ones at its next store. The device now
// sees the stores of neither process. The caller holds the sharing mutex, and not the exchange
// lock, which is taken here.
void take_pages_from_parent() noexcept {
    Sharing& sharing = Sharing::instance();
    for (std::size_t i = 0; i < g_fork.count; ++i) {
        Copy& copy = g_fork.copies[i];
        if (!copy.noted) continue;
        void* const wanted = reinterpret_cast<void*>(copy.address);
        {
            const std::lock_guard exchanging(sharing.exchange_lock);
            if (libc::mremap(reinterpret_cast<void*>(copy.memory), copy.length, copy.length,
                             MREMAP_MAYMOVE | MREMAP_FIXED, wanted) == MAP_FAILED)
                continue;
        }
        try {
            sharing.replaced(copy.address, copy.address + copy.length);
        } catch (const std::bad_alloc&) {
            LOG_ERROR("fork: out of memory to note which pages the parent lost");
        }
        LOG_DEBUG("fork took registered pages at %#llx-%#llx from the parent",
                  static_cast<unsigned long long>(copy.address),
                  static_cast<unsigned long long>(copy.address + copy.length));
        copy.length = 0;
    }
}

void forget_copies() noexcept {
    if (g_fork.copies) libc::munmap(g_fork.copies, g_fork.capacity * sizeof(Copy));
    g_fork.copies = nullptr;
    g_fork.count = g_fork.capacity = 0;
}

}  // namespace

void atfork_prepare() noexcept {
    Sharing& sharing = Sharing::instance();
    sharing.mutex.lock();
    sharing.exchange_lock.lock();
    arena_lock_for_fork();
    SOFTHCA_ASSERT(g_fork.count == 0 && !g_fork.copies && !g_fork.net);
    g_fork.parent = libc::getpid();
    g_fork.placed = false;
    const OwnPages own;
    if (!sharing.inherited) take_copies(own);
    if (g_fork.count > 0) install_net();
    g_forking.store(true, std::memory_order_relaxed);
}

void atfork_parent() noexcept {
    SOFTHCA_ASSERT(libc::getpid() == g_fork.parent && !g_fork.placed);
    remove_net();
    Sharing& sharing = Sharing::instance();
    arena_unlock_after_fork(false);
    sharing.exchange_lock.unlock();
    if (!copies_on_fork()) take_pages_from_parent();
    for (std::size_t i = 0; i < g_fork.count; ++i)
        if (g_fork.copies[i].length != 0)
            libc::munmap(reinterpret_cast<void*>(g_fork.copies[i].memory), g_fork.copies[i].length);
    forget_copies();
    g_forking.store(false, std::memory_order_relaxed);
    sharing.mutex.unlock();
}

void atfork_child() noexcept {
    place_copies();
    remove_net();
    forget_copies();
    Sharing& sharing = Sharing::instance();
    sharing.drop_inherited_files();
    arena_unlock_after_fork(true);
    g_forking.store(false, std::memory_order_relaxed);
    sharing.exchange_lock.unlock();
    sharing.mutex.unlock();
}

}  // namespace softhca::device::memory
