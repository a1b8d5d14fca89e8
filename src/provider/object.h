// SPDX-License-Identifier: BSD-2-Clause
// What libfabric's objects have in common: each is the C structure that programs hold a pointer to,
// with ours derived from it, and counts who still uses it, as closing such a one is refused.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <atomic>

#include "heddle/detail/assert.h"

namespace heddle::provider {

// Of T, which is derived from its C structure T::Fid; that begins with `struct fid`.
template <class T>
T& object(fid* handle) noexcept {
    return static_cast<T&>(*reinterpret_cast<typename T::Fid*>(handle));
}

inline void describe(fid& handle, std::size_t kind, void* context, fi_ops& ops) noexcept {
    handle.fclass = kind;
    handle.context = context;
    handle.ops = &ops;
}

class Uses {
public:
    void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept {
        [[maybe_unused]] const int before = count_.fetch_sub(1, std::memory_order_acq_rel);
        HEDDLE_ASSERT(before > 0);
    }
    bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }

private:
    std::atomic<int> count_{0};
};

// One use, for as long as it lives.
class Use {
public:
    Use() noexcept = default;
    explicit Use(Uses& of) noexcept : of_(&of) { of.add(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
        if (of_ != nullptr) of_->drop();
    }
    void set(Uses& of) noexcept {
        HEDDLE_ASSERT(of_ == nullptr);
        of_ = &of;
        of.add();
    }

private:
    Uses* of_ = nullptr;
};

}  // namespace heddle::provider
