// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions for the command descriptor (ioctl, mmap) and for registered memory
// (madvise, mremap: device/memory/program_calls.h). For all other descriptors and memory they add a
// comparison or two.
//
// The program's own calls go on to libc's functions, not to the kernel. A registration cache finds
// out what a program unmaps or discards by hooks in those functions (UCX patches their code).
//
// Interposing mmap is not essential. The command descriptor is a sparse file in which every UAR
// offset is valid, so a mapping that bypasses us works as well (UCX's memory hooks call the kernel
// themselves). Mappings that we see are checked and counted.
#include <cerrno>
#include <cstdarg>

#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>

#include "softhca/base/libc.h"
#include "softhca/device/memory/program_calls.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {

namespace {

// libc's function. An allocator may call us while it initialises itself, where dlsym must not
// allocate. If it does, the system call is made instead until our own initialisation.
template <typename Function>
Function* function_beneath(Next which, Function* system_call) noexcept {
    static const bool early = dlsym_needs_no_memory();
    void* const address = early ? next_address(which) : resolved_address(which);
    return address != nullptr ? reinterpret_cast<Function*>(address) : system_call;
}

device::memory::Beneath beneath() noexcept {
    return {function_beneath<device::memory::AdviseFunction>(Next::kMadvise, libc::madvise),
            function_beneath<device::memory::RemapFunction>(Next::kMremap, libc::mremap)};
}

using MmapFunction = void*(void*, std::size_t, int, int, int, off_t);

}  // namespace

SOFTHCA_INTERPOSE(ioctl, int, interpose_ioctl, (int fd, unsigned long request, ...) noexcept);
int interpose_ioctl(int fd, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (fd >= 0 && uverbs::owns(fd)) [[unlikely]] {
        return uverbs::ioctl(fd, request, argument);
    }
    const int result = libc::ioctl(fd, request, argument);
    const bool refused = result != 0 && request == RDMA_VERBS_IOCTL && errno == ENOTTY;
    if (refused && uverbs::adopt(fd)) [[unlikely]] {
        return uverbs::ioctl(fd, request, argument);  // a duplicate that we had not seen
    }
    return result;
}

SOFTHCA_INTERPOSE_VERSIONED(mmap, void*, interpose_mmap,
                            (void* address, std::size_t length, int prot, int flags, int fd,
                             off_t offset) noexcept);
SOFTHCA_VERSIONED_NAME(mmap, interpose_mmap);
SOFTHCA_VERSIONED_ALSO(mmap64, mmap, interpose_mmap);
void* interpose_mmap(void* address, std::size_t length, int prot, int flags, int fd,
                     off_t offset) noexcept {
    const bool of_file = fd >= 0 && (flags & MAP_ANONYMOUS) == 0;
    if (of_file && uverbs::owns(fd)) [[unlikely]] {
        return uverbs::map(fd, address, length, prot, flags, offset);
    }
    return function_beneath<MmapFunction>(Next::kMmap, libc::mmap)(address, length, prot, flags, fd,
                                                                   offset);
}

SOFTHCA_INTERPOSE_VERSIONED(mremap, void*, interpose_mremap,
                            (void* address, std::size_t old_length, std::size_t new_length,
                             int flags, ...) noexcept);
SOFTHCA_VERSIONED_NAME(mremap, interpose_mremap);
void* interpose_mremap(void* address, std::size_t old_length, std::size_t new_length, int flags,
                       ...) noexcept {
    va_list arguments;
    va_start(arguments, flags);
    // The kernel looks at the fifth argument if a flag says that there is one.
    void* const new_address =
        flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? va_arg(arguments, void*) : nullptr;
    va_end(arguments);
    return device::memory::remap(address, old_length, new_length, flags, new_address, beneath());
}

SOFTHCA_INTERPOSE_VERSIONED(madvise, int, interpose_madvise,
                            (void* address, std::size_t length, int advice) noexcept);
SOFTHCA_VERSIONED_NAME(madvise, interpose_madvise);
int interpose_madvise(void* address, std::size_t length, int advice) noexcept {
    return device::memory::advise(address, length, advice, beneath());
}

}  // namespace softhca::preload
