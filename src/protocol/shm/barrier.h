// SPDX-License-Identifier: BSD-2-Clause
// Memory barriers that one process makes in all others that have asked for it: membarrier(2),
// MEMBARRIER_CMD_GLOBAL_EXPEDITED, Linux 4.16. Then only the side that seldom needs a barrier pays
// for it (shm_ring.h). Any thread.
#pragma once

namespace heddle::protocol {

// This process takes part in the barriers of others from now on. False: it cannot.
bool join_shared_barriers() noexcept;
// This process can make them.
bool can_make_shared_barriers() noexcept;
// All memory accesses of this thread before it, and of other threads of processes that take part,
// are ordered: whoever runs has passed a full barrier. Where that cannot be had, it is a barrier of
// this thread alone.
void make_shared_barrier() noexcept;

}  // namespace heddle::protocol
