// SPDX-License-Identifier: BSD-2-Clause
// Explains failures whose reason may be the limit of locked memory. Registered memory and queues
// are pinned and count against RLIMIT_MEMLOCK (kernel: ib_umem_get). Beyond the limit the kernel
// returns ENOMEM; if the limit is 0, it returns EPERM.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <string>

namespace heddle::verbs {

// Returns whether the kernel enforces RLIMIT_MEMLOCK, which is `limit` bytes, for this process. It
// does not if the process has CAP_IPC_LOCK, or if the device pins nothing. The function tries a
// registration that is longer, which may take a millisecond. Above 64 MiB it returns true without a
// try. Thread-safe.
bool is_held_to_memlock(ibv_pd* pd, std::size_t limit) noexcept;

// Returns a hint for VerbsError: the limit and its value if it may be the reason of `error` (an
// errno), followed by `otherwise`; else `otherwise` alone.
std::string memlock_hint(int error, const std::string& otherwise = {});

}  // namespace heddle::verbs
