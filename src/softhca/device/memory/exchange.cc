// SPDX-License-Identifier: BSD-2-Clause
// Exchanges pages: private ones for pages of the arena with the same content, and back. Between the
// first copied byte and the last mapped page nobody writes to them (write_guard.h), and this thread
// touches nothing but its stack.

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/memory/arena_internal.h"
#include "softhca/device/memory/pagemap.h"
#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

namespace {

// Blocks all signals: a signal handler that touches a held page would wait for its own thread.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        std::uint64_t all = ~std::uint64_t{0};
        ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old_, sizeof old_);
    }
    ~SignalsBlocked() { ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old_, nullptr, sizeof old_); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    std::uint64_t old_ = 0;
};

// Whether RLIMIT_FSIZE applies: write(2) beyond it raises a deadly signal, also on a memfd.
bool file_size_limited() noexcept {
    rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Reads whole pages, including bytes that AddressSanitizer has poisoned.
[[gnu::no_sanitize_address]] bool all_zero(std::uint64_t page, std::uint64_t length) noexcept {
    const auto* words = static_cast<const std::uint64_t*>(pointer(page));
    std::uint64_t any = 0;
    for (std::uint64_t i = 0; i < length / sizeof *words && any == 0; i += 8)
        for (std::uint64_t k = 0; k < 8; ++k)
            any |= words[i + k];
    return any == 0;
}

// Where the content at the page `data` of the arena's file ends, at most `end`. SEEK_HOLE would
// look at every page up to the next hole, which may be gigabytes beyond `end` (mm/filemap.c,
// mapping_seek_hole_data()). SEEK_DATA looks at one page if that has content.
std::uint64_t content_end(int fd, std::uint64_t data, std::uint64_t end) noexcept {
    for (std::uint64_t at = data + page_bytes(); at < end; at += page_bytes())
        if (libc::lseek(fd, static_cast<off_t>(at), SEEK_DATA) != static_cast<off_t>(at)) return at;
    return end;
}

// Whether the system gives huge pages to shared memory that asks for them.
bool huge_pages_on_request() noexcept {
    static const bool answer = [] {
        char text[128] = "";
        const int fd =
            libc::open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return false;
        const ssize_t size = libc::read(fd, text, sizeof text - 1);
        libc::close(fd);
        return size > 0 && std::strstr(text, "[advise]") != nullptr;
    }();
    return answer;
}

}  // namespace

bool is_locked(std::uint64_t address, std::uint64_t length) noexcept {
    return ::msync(pointer(address), length, MS_ASYNC | MS_INVALIDATE) != 0 && errno == EBUSY;
}

void lock_pages(long number, std::uint64_t address, std::uint64_t length) noexcept {
    ::syscall(number, address, length);
}

// Where something was copied to, as offsets in the arena. If there are many runs, the first ones.
struct Sharing::DataRuns {
    struct Run {
        std::uint64_t at, length;
    };
    std::array<Run, 16> run;
    unsigned count = 0;

    void add(std::uint64_t at, std::uint64_t length) noexcept {
        SOFTHCA_DEBUG_ASSERT(length > 0 && count <= run.size());
        if (count > 0 && run[count - 1].at + run[count - 1].length == at)
            run[count - 1].length += length;
        else if (count < run.size())
            run[count++] = {at, length};
    }
};

// Copies by system calls, because the application may unmap the source at any moment. Writing to
// the file avoids the page faults of writing to the mapping, and the zeroing.
bool Sharing::copy_run(std::uint64_t source, std::uint64_t length, std::uint64_t offset) noexcept {
    SOFTHCA_ASSERT(offset < arena_bytes() && length <= arena_bytes() - offset);
    const bool by_file = !file_size_limited();
    while (length > 0) {
        ssize_t done;
        if (by_file) {
            done = libc::pwrite(arena_fd(), pointer(source), length, static_cast<off_t>(offset));
        } else {
            const iovec local{arena_base() + offset, length};
            const iovec remote{pointer(source), length};
            done = libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1);
        }
        if (done <= 0) return false;
        source += static_cast<std::uint64_t>(done);
        offset += static_cast<std::uint64_t>(done);
        length -= static_cast<std::uint64_t>(done);
    }
    return true;
}

// Copies those pages of a run that are not all zero. `plain`: the source can be read directly.
// Otherwise it is read into a buffer, if the system allows that.
bool Sharing::copy_pages(std::uint64_t source, std::uint64_t length, std::uint64_t offset,
                         bool plain, DataRuns* runs) noexcept {
    const std::uint64_t page = page_bytes();
    SOFTHCA_ASSERT(length % page == 0 && offset % page == 0 && sizeof bounce_ % page == 0);
    while (length > 0) {
        const std::uint64_t block =
            plain ? length : std::min<std::uint64_t>(length, sizeof bounce_);
        std::uint64_t look = source;
        if (!plain) {
            const iovec local{bounce_, block};
            const iovec remote{pointer(source), block};
            const ssize_t got = libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1);
            if (got < 0 && errno != EFAULT) {
                runs->add(offset, length);
                return copy_run(source, length, offset);
            }
            if (got != static_cast<ssize_t>(block)) return false;
            look = reinterpret_cast<std::uint64_t>(bounce_);
        }
        for (std::uint64_t at = 0; at < block;) {
            if (all_zero(look + at, page)) {
                at += page;
                continue;
            }
            std::uint64_t end = at + page;
            while (end < block && !all_zero(look + end, page))
                end += page;
            if (!copy_run(look + at, end - at, offset + at)) return false;
            runs->add(offset + at, end - at);
            at = end;
        }
        source += block;
        offset += block;
        length -= block;
    }
    return true;
}

// Copies held pages into the arena. Pages that never had content stay holes. `plain`: as above.
// `huge`: where whole huge pages are copied, the copies become huge pages, too.
bool Sharing::copy_in(const WriteGuard::Held& held, bool plain, std::uint64_t offset, bool huge,
                      DataRuns* runs) noexcept {
    const std::uint64_t page = page_bytes();
    SOFTHCA_ASSERT(held.bytes % page == 0 && held.source % page == 0);
    const int fd = pagemap_.number();
    std::array<std::uint64_t, 512> entries;
    const auto copy = [&](std::uint64_t from, std::uint64_t to) {
        return copy_pages(held.source + from, to - from, offset + from, plain, runs);
    };
    std::uint64_t run = 0, run_end = 0;  // relative to held.source; still to be copied
    for (std::uint64_t at = 0; at < held.bytes;) {
        // This ends where a huge page of the arena ends.
        const std::uint64_t room = kHugeBytes - (offset + at) % kHugeBytes;
        const std::uint64_t pages =
            std::min<std::uint64_t>(std::min(held.bytes - at, room) / page, entries.size());
        const bool known = read_pagemap(fd, held.source + at, std::span(entries.data(), pages));
        if (huge && known && pages * page == kHugeBytes &&
            std::all_of(entries.begin(), entries.begin() + pages, has_content))
            libc::madvise(arena_base() + offset + at, kHugeBytes, libc::kMadvPopulateWrite);
        for (std::uint64_t i = 0; i < pages; ++i, at += page) {
            if (known && !has_content(entries[i])) continue;
            if (at != run_end) {
                if (!copy(run, run_end)) return false;
                run = at;
            }
            run_end = at + page;
        }
        SOFTHCA_ASSERT(run <= run_end && run_end <= at && at <= held.bytes);
    }
    return copy(run, run_end);
}

Sharing::Outcome Sharing::make_shared(std::uint64_t address, std::uint64_t length,
                                      std::uint64_t offset, bool writers) noexcept {
    SOFTHCA_ASSERT(length > 0 && length <= WriteGuard::kMostBytes);
    SOFTHCA_ASSERT(address % page_bytes() == 0 && offset % page_bytes() == 0);
    if (!arena_fd_intact()) return {0, Left::kPiece};
    pagemap_.get();  // open it now, because nothing may be opened while pages are held
    const bool locked = is_locked(address, length);
    if (locked) lock_pages(SYS_munlock, address, length);
    std::byte* const window = arena_base() + offset;
    const bool huge = length >= kHugeBytes && huge_pages_on_request() &&
                      libc::madvise(window, length, MADV_HUGEPAGE) == 0;

    WriteGuard::Held held;
    DataRuns runs;
    bool done = false;
    {
        SignalsBlocked signals;
        held = guard.hold(address, length, writers, pagemap_.number());
        SOFTHCA_ASSERT(held.bytes <= length);
        if (held.bytes > 0) {
            done = copy_in(held, held.source != address || !writers, offset, huge, &runs) &&
                   libc::mmap(pointer(address), held.bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena_fd(),
                              static_cast<off_t>(offset)) != MAP_FAILED;
            if (done) {
                // A child that was created without our fork handlers must not write to its parent's
                // memory.
                libc::madvise(pointer(address), held.bytes, MADV_DONTFORK);
                guard.replaced(address, held);
            } else {
                guard.put_back(address, held);
            }
        }
    }
    if (!done) {
        LOG_DEBUG("cannot share the private pages at %#llx: %s",
                  static_cast<unsigned long long>(address), strerrordesc_np(errno));
        if (locked) lock_pages(SYS_mlock, address, length);
        libc::madvise(window, length, MADV_REMOVE);
        return {0, held.bytes == 0 && held.stuck ? Left::kThisPage : Left::kPiece};
    }
    if (held.bytes < length) libc::madvise(window + held.bytes, length - held.bytes, MADV_REMOVE);
    if (huge) libc::madvise(pointer(address), held.bytes, MADV_HUGEPAGE);
    if (locked) {
        lock_pages(SYS_mlock, address, length);
    } else {
        // Populate the pages that had content, without a page fault for each.
        for (unsigned i = 0; i < runs.count; ++i)
            libc::madvise(pointer(address + (runs.run[i].at - offset)), runs.run[i].length,
                          libc::kMadvPopulateRead);
    }
    ++counters_.conversions;
    return {held.bytes, held.bytes == length ? Left::kNothing
                        : held.stuck         ? Left::kThisPage
                                             : Left::kPiece};
}

void Sharing::copy_out(std::uint64_t offset, std::uint64_t length, std::uint64_t to) noexcept {
    SOFTHCA_ASSERT(offset < arena_bytes() && length <= arena_bytes() - offset);
    const std::byte* const window = arena_base();
    const int fd = arena_fd_intact() ? arena_fd() : -1;
    const std::uint64_t end = offset + length;
    for (std::uint64_t at = offset; at < end;) {
        std::uint64_t data = at, hole = end;
        if (fd >= 0) {
            const off_t found = libc::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
            if (found < 0 && errno == ENXIO) return;  // only holes up to the end of the file
            if (found >= 0) data = static_cast<std::uint64_t>(found);
            if (data >= end) return;
            hole = content_end(fd, data, end);
        }
        const std::uint64_t size = hole - data;
        char* const target = static_cast<char*>(pointer(to + (data - offset)));
        // Populate the target without a page fault for each page.
        libc::madvise(target, size, libc::kMadvPopulateWrite);
        if (fd < 0 ||
            libc::pread(fd, target, size, static_cast<off_t>(data)) != static_cast<ssize_t>(size))
            std::memcpy(target, window + data, size);
        at = hole;
    }
}

bool Sharing::make_private(std::uint64_t address, std::uint64_t length, std::uint64_t offset,
                           int protection, bool writers, std::uint64_t fresh) noexcept {
    SOFTHCA_ASSERT(length > 0 && length <= WriteGuard::kMostBytes);
    SOFTHCA_ASSERT(address % page_bytes() == 0 && fresh % page_bytes() == 0 && fresh != 0);
    const bool locked = is_locked(address, length);
    bool done = false;
    {
        SignalsBlocked signals;
        const bool held = writers && guard.hold_shared(address, length);
        if (!writers || held) {
            copy_out(offset, length, fresh);
            done = (protection == (PROT_READ | PROT_WRITE) ||
                    libc::mprotect(pointer(fresh), length, protection) == 0) &&
                   libc::mremap(pointer(fresh), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                                pointer(address)) != MAP_FAILED;
            if (held && done) guard.shared_replaced(address, length);
            if (held && !done) guard.shared_put_back(address, length);
        }
    }
    if (!done) {
        LOG_DEBUG("cannot make the shared pages at %#llx private: %s",
                  static_cast<unsigned long long>(address), strerrordesc_np(errno));
        return false;
    }
    if (locked) lock_pages(SYS_mlock, address, length);
    ++counters_.restorations;
    return true;
}

}  // namespace softhca::device::memory
