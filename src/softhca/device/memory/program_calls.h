// SPDX-License-Identifier: BSD-2-Clause
// madvise(2) and mremap(2) as the program calls them. To shared pages they must do what the kernel
// does to private ones, which it does not do by itself:
// - Discarded pages (MADV_DONTNEED, MADV_FREE) read as zero. The kernel keeps the content of shared
//   pages, and refuses MADV_FREE. So we empty the arena's pages. Registrations show these pages, so
//   the device sees what the program sees. A device of the trait `pinned` keeps the old pages, and
//   the program gets others.
// - Memory grows with private pages of zeros. The kernel would let it grow over the arena's pages
//   that follow. Pages that move stay those of their registrations, as pinned pages do.
//
// Libraries that want to see the program's calls (the memory hooks of registration caches) are
// called without any lock of ours.
//
// Both may be called by any thread, also by an allocator under its locks. Neither uses the heap.
#pragma once

#include <cstddef>

namespace softhca::device::memory {

using AdviseFunction = int(void* address, std::size_t length, int advice);
using RemapFunction = void*(void* address, std::size_t old_length, std::size_t new_length,
                            int flags, void* new_address);

// The functions beneath, in libc or in such a library.
struct Beneath {
    AdviseFunction* advise;
    RemapFunction* remap;
};

// Results as of madvise(2) and mremap(2) on private memory.
int advise(void* address, std::size_t length, int advice, const Beneath& beneath) noexcept;
void* remap(void* address, std::size_t old_length, std::size_t new_length, int flags,
            void* new_address, const Beneath& beneath) noexcept;

}  // namespace softhca::device::memory
