// SPDX-License-Identifier: BSD-2-Clause
// Barriers in several processes: see barrier.h.
#include "protocol/shm/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace heddle::protocol {
namespace {

long membarrier(int command) noexcept { return ::syscall(__NR_membarrier, command, 0, 0); }

}  // namespace

bool join_shared_barriers() noexcept {
    static const bool joined = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
    return joined;
}

// A filter of system calls may allow the question and refuse the barrier: so one is made.
bool can_make_shared_barriers() noexcept {
    static const bool can = membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
    return can;
}

void make_shared_barrier() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (can_make_shared_barriers()) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace heddle::protocol
