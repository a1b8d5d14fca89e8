// SPDX-License-Identifier: BSD-2-Clause
// The process that this memory belongs to, remembered at start and by fork()'s handler.
#include "softhca/preload/process.h"

#include <atomic>

#include <pthread.h>

#include "softhca/base/libc.h"
#include "softhca/base/options.h"

namespace softhca::preload {

namespace {

std::atomic<pid_t> owner{0};  // 0: our constructor has not run, so nobody has forked yet

void remember_owner() noexcept { owner.store(libc::getpid(), std::memory_order_relaxed); }

__attribute__((constructor)) void start() {
    remember_owner();
    ::pthread_atfork(nullptr, nullptr, remember_owner);
    // Read now, so that no child is forked in the middle of it.
    options_without_report();
}

}  // namespace

bool in_borrowed_memory() noexcept {
    const pid_t known = owner.load(std::memory_order_relaxed);
    return known != 0 && known != libc::getpid();
}

}  // namespace softhca::preload
