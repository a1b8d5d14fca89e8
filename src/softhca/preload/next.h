// SPDX-License-Identifier: BSD-2-Clause
// The libc functions beneath those interposed functions that are more than a system call. All of
// them are resolved when the library is initialised, because dlsym takes the loader's lock, which
// must not happen in a forked child or a signal handler. Earlier calls resolve them one by one.
#pragma once

#include <atomic>

namespace softhca::preload {

enum class Next : unsigned {
    kFopen,
    kFreopen,
    kFclose,
    kOpendir,
    kFdopendir,
    kReaddir,
    kRewinddir,
    kClosedir,
    kFtw,
    kNftw,
    kGlob,
    kRealpath,
    kRealpathChk,
    kReadlinkChk,
    kReadlinkatChk,
    kGetcwd,
    kGetcwdChk,
    kGetCurrentDirName,
    kFaccessat,
    kStatvfs,
    kPathconf,
    kSend,
    kSendto,
    kSendmsg,
    kSendmmsg,
    kRecv,
    kRecvfrom,
    kRecvmsg,
    kRecvmmsg,
    kRecvChk,
    kRecvfromChk,
    kWrite,
    kGetifaddrs,
    kBarrierWait,
    kMmap,
    kMremap,
    kMadvise,
    kCount,
};

// The function's address, or nullptr if this libc does not have it.
void* next_address(Next which) noexcept;

// The same, or nullptr if it has not been resolved yet.
void* resolved_address(Next which) noexcept;

// Whether finding a function allocates no memory: glibc since 2.34, without a sanitizer.
bool dlsym_needs_no_memory() noexcept;

template <typename Function>
Function* next(Next which) noexcept {
    return reinterpret_cast<Function*>(next_address(which));
}

}  // namespace softhca::preload
