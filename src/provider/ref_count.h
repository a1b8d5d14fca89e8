// SPDX-License-Identifier: BSD-2-Clause
// References of libfabric objects to one another: an endpoint refers to its CQs, a CQ to its
// domain. An object that is referred to must not be closed.
#pragma once

#include <atomic>

#include "heddle/detail/assert.h"

namespace heddle::provider {

// Counts the references to an object. Thread-safe.
class RefCount {
public:
    void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
    void drop() noexcept {
        [[maybe_unused]] const int before = count_.fetch_sub(1, std::memory_order_acq_rel);
        HEDDLE_ASSERT(before > 0, "a reference was dropped twice");
    }
    bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }

private:
    std::atomic<int> count_{0};
};

// One reference, held as long as this object lives.
class Ref {
public:
    Ref() noexcept = default;
    explicit Ref(RefCount& of) noexcept : of_(&of) { of.add(); }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;
    ~Ref() {
        if (of_ != nullptr) of_->drop();
    }
    void set(RefCount& of) noexcept {
        HEDDLE_ASSERT(of_ == nullptr, "a Ref refers to one object for its whole life");
        of_ = &of;
        of.add();
    }

private:
    RefCount* of_ = nullptr;
};

}  // namespace heddle::provider
