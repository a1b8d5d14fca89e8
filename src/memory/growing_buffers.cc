// SPDX-License-Identifier: BSD-2-Clause
#include "memory/growing_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "memory/pool.h"
#include "verbs/memlock.h"

namespace heddle::memory {

// MAP_NORESERVE: the kernel counts pages when they are used, not the addresses.
GrowingBuffers::GrowingBuffers(ibv_pd* pd, std::size_t bytes, std::uint32_t count,
                               std::uint32_t capacity, int access)
    : pd_(pd),
      bytes_(rounded_up(bytes, kCacheLine)),
      capacity_(std::max(count, capacity)),
      access_(IBV_ACCESS_LOCAL_WRITE | access),
      reserved_(rounded_up(bytes_ * capacity_, kPageBytes)) {
    void* const memory = ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        throw VerbsError("addresses for " + std::to_string(reserved_) + " bytes of buffers", errno);
    memory_ = static_cast<std::byte*>(memory);
    try {
        grow(count);
    } catch (...) {
        ::munmap(memory_, reserved_);
        throw;
    }
}

GrowingBuffers::~GrowingBuffers() {
    parts_.clear();
    ::munmap(memory_, reserved_);
}

std::uint32_t GrowingBuffers::key(std::uint32_t index) const noexcept {
    HEDDLE_ASSERT(index < count_);
    const auto part = std::find_if(parts_.begin(), parts_.end(),
                                   [index](const Part& each) { return index < each.end; });
    return part->region->lkey;
}

// A part begins with the page in which its first buffer begins, also if the part before ends there.
void GrowingBuffers::grow(std::uint32_t count) {
    HEDDLE_ASSERT(count > count_ && count <= capacity_);
    const std::size_t begin = count_ * bytes_ / kPageBytes * kPageBytes;
    const std::size_t end = rounded_up(count * bytes_, kPageBytes);
    parts_.reserve(parts_.size() + 1);
    verbs::MemoryRegion region(ibv_reg_mr(pd_, memory_ + begin, end - begin, access_));
    if (!region)
        throw VerbsError("registering " + std::to_string(end - begin) + " bytes of buffers", errno,
                         verbs::memlock_hint(errno));
    parts_.push_back({count, std::move(region)});
    count_ = count;
}

}  // namespace heddle::memory
