// SPDX-License-Identifier: BSD-2-Clause
// Why memory could not be registered, or a queue be made, where the limit of locked memory can be
// the reason: all that a process registers, and its queues, are pinned and count against
// RLIMIT_MEMLOCK (kernel: ib_umem_get), beyond which the answer is ENOMEM; EPERM if it is 0.
#pragma once

#include <string>

namespace heddle::verbs {

// A hint for VerbsError: names the limit and what it is, if `error` can come of it; else
// `otherwise`.
std::string memlock_hint(int error, const std::string& otherwise = {});

}  // namespace heddle::verbs
