// SPDX-License-Identifier: BSD-2-Clause
// Registered buffers of one size, in one piece of memory: what messages are received into, and
// copied into before they are sent. By one thread at a time.
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
    // `count` buffers of `bytes` each, rounded up to cache lines; zeros. Peers may have more access
    // (IBV_ACCESS_...). Throws VerbsError.
    Pool(ibv_pd* pd, std::size_t bytes, std::uint32_t count, int access = 0);

    std::size_t bytes() const noexcept { return bytes_; }
    std::uint32_t count() const noexcept { return count_; }
    std::uint32_t key() const noexcept { return mr_->lkey; }
    std::uint32_t remote_key() const noexcept { return mr_->rkey; }
    std::byte* at(std::uint32_t index) const noexcept { return memory_.get() + index * bytes_; }
    std::uint32_t index_of(const void* buffer) const noexcept {
        return static_cast<std::uint32_t>(
            static_cast<std::size_t>(static_cast<const std::byte*>(buffer) - memory_.get()) /
            bytes_);
    }

    // nullptr: all are out.
    std::byte* take() noexcept {
        if (free_.empty()) return nullptr;
        const std::uint32_t index = free_.back();
        free_.pop_back();
        out_[index] = true;
        return at(index);
    }
    void give_back(const void* buffer) noexcept { give_back(index_of(buffer)); }
    // A buffer that is given back twice would be two messages' at once.
    void give_back(std::uint32_t index) noexcept {
        HEDDLE_ASSERT(index < count_ && out_[index]);
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
