// SPDX-License-Identifier: BSD-2-Clause
// Why memory could not be registered, or a queue be made, where the limit of locked memory can be
// the reason: all that a process registers, and its queues, are pinned and count against
// RLIMIT_MEMLOCK (kernel: ib_umem_get), beyond which the answer is ENOMEM; EPERM if it is 0.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <string>

namespace heddle::verbs {

// Whether this process is held to RLIMIT_MEMLOCK, which is so many bytes: who has CAP_IPC_LOCK is
// not, nor who uses a device that pins nothing. Asked of the kernel, by a registration that is
// longer, which may take a millisecond; above 64 MiB nobody asks, and the answer is yes.
// Thread-safe.
bool is_held_to_memlock(ibv_pd* pd, std::size_t limit) noexcept;

// A hint for VerbsError: names the limit and what it is, if `error` can come of it; else
// `otherwise`.
std::string memlock_hint(int error, const std::string& otherwise = {});

}  // namespace heddle::verbs
