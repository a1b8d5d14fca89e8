// SPDX-License-Identifier: BSD-2-Clause
#include "memory/pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "heddle/error.h"
#include "verbs/memlock.h"

namespace heddle::memory {

void Pool::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

// Pages of its own, so that nothing else is registered, or made shared, with them.
Pool::Pool(ibv_pd* pd, std::size_t bytes, std::uint32_t count, int access)
    : bytes_(rounded_up(bytes, kCacheLine)), count_(count) {
    const std::size_t all = rounded_up(bytes_ * count_, kPageBytes);
    void* const memory =
        ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw VerbsError("a pool of " + std::to_string(all) + " bytes", errno);
    memory_ = {static_cast<std::byte*>(memory), Unmap{all}};
    mr_.reset(ibv_reg_mr(pd, memory, all, IBV_ACCESS_LOCAL_WRITE | access));
    if (!mr_)
        throw VerbsError("registering a pool of " + std::to_string(all) + " bytes", errno,
                         verbs::memlock_hint(errno));
    out_ = std::make_unique<bool[]>(count_);
    free_.reserve(count_);
    for (std::uint32_t i = count_; i != 0; --i)
        free_.push_back(i - 1);
}

}  // namespace heddle::memory
