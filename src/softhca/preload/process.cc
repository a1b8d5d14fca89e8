// SPDX-License-Identifier: BSD-2-Clause
// Remembers the process that owns this memory, at the start and in fork()'s handler.
#include "softhca/preload/process.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"

namespace softhca::preload {

namespace {

std::atomic<pid_t> owner{0};  // 0: our constructor has not run, so no fork has happened

void remember_owner() noexcept { owner.store(libc::getpid(), std::memory_order_relaxed); }

// Refuses the system call to the program and its children, as a container's filter does.
void refuse_userfaultfd() noexcept {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return;
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        LOG_ERROR("no-userfaultfd: cannot install a filter: %s", strerrordesc_np(errno));
}

__attribute__((constructor)) void start() {
    remember_owner();
    SOFTHCA_ASSERT(owner.load(std::memory_order_relaxed) != 0);
    ::pthread_atfork(nullptr, nullptr, remember_owner);
    // The options are read now, so that no child is forked while they are being read.
    if (options_without_report().device.has(DeviceTrait::kNoUserfaultfd)) refuse_userfaultfd();
}

}  // namespace

bool in_borrowed_memory() noexcept {
    const pid_t known = owner.load(std::memory_order_relaxed);
    return known != 0 && known != libc::getpid();
}

}  // namespace softhca::preload
