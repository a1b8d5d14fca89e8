// SPDX-License-Identifier: BSD-2-Clause
// libheddle-yield.so, which `heddle run` has the loader put in front of the C library. MPICH and
// the MPIs that descend from it call sched_yield() after each look for messages, also after one
// that has found its message (MPID_Progress_wait in src/mpid/ch4/src/ch4_progress.h). Links the C
// library alone. Any thread, and signal handlers, may call it.
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "yield/yield_policy.h"

namespace {

// In the thread's static block: reading it calls nothing.
thread_local constinit heddle::yield::YieldPolicy t_policy
    __attribute__((tls_model("initial-exec")));

std::uint64_t now_ns() noexcept {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
    if (t_policy.may_skip()) return 0;
    const std::uint64_t begin = now_ns();
    const long result = syscall(SYS_sched_yield);
    t_policy.note(now_ns() - begin);
    return static_cast<int>(result);
}
