// SPDX-License-Identifier: BSD-2-Clause
// An allocator for the nodes of std::map that does not use the heap. There are three reasons: the
// heap may lie on pages that are being exchanged, a thread that forks may hold its locks, and other
// libraries' memory hooks, which call us, depend on it.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>

#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"

namespace softhca::device::memory {

// Blocks of one size. The pool takes 64 KiB at a time from the system and never gives them back, so
// its size is the maximum number of nodes. Its users hold their own locks across fork, so the
// pool's lock is free then.
template <std::size_t kSize>
class NodePool {
public:
    static NodePool& instance() noexcept {
        alignas(NodePool) static std::byte storage[sizeof(NodePool)];
        static NodePool* const pool = new (storage) NodePool;  // never destroyed
        return *pool;
    }

    void* take() {
        std::lock_guard lock(mutex_);
        if (!free_) refill();
        Block* const block = free_;
        SOFTHCA_ASSERT(block != nullptr);
        free_ = block->next;
        return block;
    }

    void give(void* at) noexcept {
        SOFTHCA_ASSERT(at != nullptr);
        std::lock_guard lock(mutex_);
        free_ = new (at) Block{free_};
    }

private:
    struct Block {
        Block* next;
    };
    static constexpr std::size_t kBlockBytes =
        (kSize + alignof(std::max_align_t) - 1) & ~(alignof(std::max_align_t) - 1);
    static constexpr std::size_t kChunkBytes = 64 << 10;
    static_assert(kBlockBytes >= sizeof(Block) && kBlockBytes <= kChunkBytes);

    void refill() {
        void* const chunk = libc::mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) throw std::bad_alloc();
        for (std::size_t at = 0; at + kBlockBytes <= kChunkBytes; at += kBlockBytes)
            free_ = new (static_cast<std::byte*>(chunk) + at) Block{free_};
    }

    std::mutex mutex_;
    Block* free_ = nullptr;  // under the mutex
};

template <typename T>
struct PoolAllocator {
    using value_type = T;
    static_assert(alignof(T) <= alignof(std::max_align_t));

    PoolAllocator() noexcept = default;
    template <typename U>
    PoolAllocator(const PoolAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) {
        if (count != 1) throw std::bad_alloc();
        return static_cast<T*>(NodePool<sizeof(T)>::instance().take());
    }
    void deallocate(T* at, std::size_t) noexcept { NodePool<sizeof(T)>::instance().give(at); }

    template <typename U>
    bool operator==(const PoolAllocator<U>&) const noexcept {
        return true;
    }
};

}  // namespace softhca::device::memory
