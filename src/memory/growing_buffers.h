// SPDX-License-Identifier: BSD-2-Clause
// Registered buffers of one size whose number grows. They form one array, so that a buffer's number
// gives its address. Their memory is registered as the array grows.
//
// One thread at a time uses an object.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"
#include "verbs/handles.h"

namespace heddle::memory {

class GrowingBuffers {
public:
    // Reserves addresses for `capacity` buffers of `bytes` each, rounded up to cache lines, and
    // makes the first `count` of them. The device may write them, with `access` (IBV_ACCESS_...)
    // besides. `pd` outlives this. Throws VerbsError.
    GrowingBuffers(ibv_pd* pd, std::size_t bytes, std::uint32_t count, std::uint32_t capacity,
                   int access = 0);
    ~GrowingBuffers();
    GrowingBuffers(const GrowingBuffers&) = delete;
    GrowingBuffers& operator=(const GrowingBuffers&) = delete;

    std::size_t bytes() const noexcept { return bytes_; }
    std::uint32_t count() const noexcept { return count_; }
    std::uint32_t capacity() const noexcept { return capacity_; }
    std::byte* at(std::uint32_t index) const noexcept {
        HEDDLE_DEBUG_ASSERT(index < capacity_, "the array ends at its capacity");
        return memory_ + index * bytes_;
    }
    // The local key of a buffer below count().
    std::uint32_t key(std::uint32_t index) const noexcept;

    // Makes as many buffers more, up to `count` (at most capacity()) in all. Throws VerbsError if
    // they cannot be registered; then nothing has changed.
    void grow(std::uint32_t count);

private:
    // What one call of grow() registered.
    struct Growth {
        std::uint32_t end;  // one more than the number of its last buffer
        verbs::MemoryRegion region;
    };
    ibv_pd* const pd_;
    const std::size_t bytes_;
    std::uint32_t count_ = 0;
    const std::uint32_t capacity_;
    const int access_;
    const std::size_t reserved_;  // bytes of address space
    std::byte* memory_ = nullptr;
    std::vector<Growth> growths_;  // by ascending `end`; the last has count_
};

}  // namespace heddle::memory
