// SPDX-License-Identifier: BSD-2-Clause
#include "memory/growing_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

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
    growths_.clear();
    ::munmap(memory_, reserved_);
}

std::uint32_t GrowingBuffers::key(std::uint32_t index) const noexcept {
    HEDDLE_ASSERT(index < count_, "only buffers below count() are registered");
    const auto growth = std::find_if(growths_.begin(), growths_.end(),
                                     [index](const Growth& each) { return index < each.end; });
    HEDDLE_ASSERT(growth != growths_.end(), "the last growth ends at count()");
    return growth->region->lkey;
}

// A region begins with the page in which its first buffer begins. The region before it may end in
// that page, too.
void GrowingBuffers::grow(std::uint32_t count) {
    HEDDLE_ASSERT(count > count_ && count <= capacity_, "the array grows, within its addresses");
    HEDDLE_ASSERT(growths_.empty() ? count_ == 0 : growths_.back().end == count_,
                  "the last growth ends at count()");
    const std::size_t begin = count_ * bytes_ / kPageBytes * kPageBytes;
    const std::size_t end = rounded_up(count * bytes_, kPageBytes);
    HEDDLE_ASSERT(end <= reserved_, "the last page of the array has an address");
    growths_.reserve(growths_.size() + 1);
    verbs::MemoryRegion region(ibv_reg_mr(pd_, memory_ + begin, end - begin, access_));
    if (!region)
        throw VerbsError("registering " + std::to_string(end - begin) + " bytes of buffers", errno,
                         verbs::memlock_hint(errno));
    growths_.push_back({count, std::move(region)});
    count_ = count;
}

}  // namespace heddle::memory
