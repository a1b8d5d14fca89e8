// SPDX-License-Identifier: BSD-2-Clause
// Gives the processor to another task, by a system call: sched_yield() may be that of
// libheddle-yield.so (src/yield), for which most calls are one too many. Those of the products are
// not: they come after spins, or are counted.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

namespace common {

inline void give_way() noexcept { ::syscall(SYS_sched_yield); }

}  // namespace common
