// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/memlock.h"

#include <sys/resource.h>

#include <cerrno>

namespace heddle::verbs {

std::string memlock_hint(int error, const std::string& otherwise) {
    rlimit limit{};
    if ((error != ENOMEM && error != EPERM) || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return otherwise;
    const std::string hint =
        "RLIMIT_MEMLOCK, which all that the process registers and all its queues count against, "
        "is " +
        std::to_string(limit.rlim_cur >> 10) + " KiB: raise it (`ulimit -l`)";
    return otherwise.empty() ? hint : hint + ", or " + otherwise;
}

}  // namespace heddle::verbs
