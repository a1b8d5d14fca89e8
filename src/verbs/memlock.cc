// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/memlock.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "heddle/detail/assert.h"

namespace heddle::verbs {

bool is_held_to_memlock(ibv_pd* pd, std::size_t limit) noexcept {
    HEDDLE_ASSERT(pd != nullptr);
    constexpr std::size_t kMostTested = std::size_t{64} << 20;
    if (limit > kMostTested) return true;
    const std::size_t bytes = limit + static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return true;
    // The kernel refuses before it touches a page (ib_umem_get).
    ibv_mr* const mr = ibv_reg_mr(pd, memory, bytes, 0);
    if (mr != nullptr) ibv_dereg_mr(mr);
    ::munmap(memory, bytes);
    return mr == nullptr;
}

std::string memlock_hint(int error, const std::string& otherwise) {
    rlimit limit{};
    if ((error != ENOMEM && error != EPERM) || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return otherwise;
    const std::string hint =
        "RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur >> 10) +
        " KiB, and all registered memory and all queues of the process count against it: raise "
        "it (`ulimit -l`)";
    return otherwise.empty() ? hint : hint + ", or " + otherwise;
}

}  // namespace heddle::verbs
