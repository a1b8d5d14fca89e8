// SPDX-License-Identifier: BSD-2-Clause
// Registered buffers of one size in one block of memory. Messages are received into them, and
// copied into them before they are sent. One thread at a time uses a pool.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/detail/assert.h"
#include "verbs/handles.h"

namespace heddle::memory {

inline constexpr std::size_t kCacheLine = 64, kPageBytes = 4096;
constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) noexcept {
    return (bytes + to - 1) / to * to;
}

class Pool {
public:
    // `count` buffers of `bytes` each, rounded up to cache lines and filled with zeros. The device
    // may write them, with `access` (IBV_ACCESS_...) besides. Throws VerbsError.
    Pool(ibv_pd* pd, std::size_t bytes, std::uint32_t count, int access = 0);

    std::size_t bytes() const noexcept { return bytes_; }
    std::uint32_t count() const noexcept { return count_; }
    std::uint32_t key() const noexcept { return mr_->lkey; }
    std::uint32_t remote_key() const noexcept { return mr_->rkey; }
    std::byte* at(std::uint32_t index) const noexcept {
        HEDDLE_DEBUG_ASSERT(index < count_, "the pool has that many buffers");
        return memory_.get() + index * bytes_;
    }
    // The number of the buffer that `buffer` points into.
    std::uint32_t index_of(const void* buffer) const noexcept {
        HEDDLE_DEBUG_ASSERT(buffer >= memory_.get() && buffer < memory_.get() + count_ * bytes_,
                            "the address is one of the pool's");
        return static_cast<std::uint32_t>(
            static_cast<std::size_t>(static_cast<const std::byte*>(buffer) - memory_.get()) /
            bytes_);
    }

    bool is_half_taken() const noexcept { return free_.size() <= count_ / 2; }
    // A buffer, until give_back(). nullptr: all are taken.
    std::byte* take() noexcept {
        if (free_.empty()) return nullptr;
        const std::uint32_t index = free_.back();
        HEDDLE_DEBUG_ASSERT(index < count_ && !out_[index], "a free buffer is not taken");
        free_.pop_back();
        out_[index] = true;
        return at(index);
    }
    void give_back(const void* buffer) noexcept { give_back(index_of(buffer)); }
    // If a buffer could be given back twice, two messages would have it at once.
    void give_back(std::uint32_t index) noexcept {
        HEDDLE_ASSERT(index < count_ && out_[index]);
        HEDDLE_DEBUG_ASSERT(free_.size() < count_, "the list was reserved for all buffers");
        out_[index] = false;
        free_.push_back(index);
    }

private:
    struct Unmap {
        std::size_t bytes = 0;
        void operator()(std::byte* memory) const noexcept;
    };
    std::size_t bytes_;
    std::uint32_t count_;
    std::unique_ptr<std::byte, Unmap> memory_{nullptr, Unmap{}};
    verbs::MemoryRegion mr_;
    std::vector<std::uint32_t> free_;  // never grows: reserved
    std::unique_ptr<bool[]> out_;      // by index: taken, and not given back
};

}  // namespace heddle::memory
