// SPDX-License-Identifier: BSD-2-Clause
// Resolves each function once by dlsym(RTLD_NEXT): see next.h.
#include "softhca/preload/next.h"

#include <cerrno>

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include "softhca/base/assert.h"

namespace softhca::preload {

namespace {

constexpr unsigned kNextCount = static_cast<unsigned>(Next::kCount);

constexpr const char* kNames[kNextCount] = {
    "fopen",
    "freopen",
    "fclose",
    "opendir",
    "fdopendir",
    "readdir",
    "rewinddir",
    "closedir",
    "ftw",
    "nftw",
    "glob",
    "realpath",
    "__realpath_chk",
    "__readlink_chk",
    "__readlinkat_chk",
    "getcwd",
    "__getcwd_chk",
    "get_current_dir_name",
    "faccessat",
    "statvfs",
    "pathconf",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "recv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "__recv_chk",
    "__recvfrom_chk",
    "write",
    "getifaddrs",
    "pthread_barrier_wait",
    "mmap",
    "mremap",
    "madvise",
};
static_assert(kNames[kNextCount - 1] != nullptr, "each function has a name");

std::atomic<void*> addresses[kNextCount];

void* look_up(unsigned index) noexcept {
    SOFTHCA_ASSERT(index < kNextCount);
    const int saved_errno = errno;
    void* address = ::dlsym(RTLD_NEXT, kNames[index]);
    addresses[index].store(address, std::memory_order_relaxed);
    errno = saved_errno;
    return address;
}

// It runs before the constructors of libraries that call us, as far as the loader allows.
__attribute__((constructor(101))) void resolve_all() {
    for (unsigned index = 0; index < kNextCount; ++index) {
        if (addresses[index].load(std::memory_order_relaxed) == nullptr) {
            look_up(index);
        }
    }
}

}  // namespace

bool dlsym_needs_no_memory() noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    unsigned major = 0, minor = 0;
    const char* at = ::gnu_get_libc_version();
    for (; *at >= '0' && *at <= '9'; ++at)
        major = major * 10 + static_cast<unsigned>(*at - '0');
    if (*at == '.') ++at;
    for (; *at >= '0' && *at <= '9'; ++at)
        minor = minor * 10 + static_cast<unsigned>(*at - '0');
    return major > 2 || (major == 2 && minor >= 34);
#endif
}

void* resolved_address(Next which) noexcept {
    return addresses[static_cast<unsigned>(which)].load(std::memory_order_relaxed);
}

void* next_address(Next which) noexcept {
    const auto index = static_cast<unsigned>(which);
    SOFTHCA_DEBUG_ASSERT(index < kNextCount);
    void* address = addresses[index].load(std::memory_order_relaxed);
    return address != nullptr ? address : look_up(index);
}

}  // namespace softhca::preload
