// SPDX-License-Identifier: BSD-2-Clause
// A value that the holder of a lock writes and that others read without the lock. What they read
// may be old the next moment, so it only hints whether to take the lock. To the processor a relaxed
// load or store is a plain one; declaring it atomic is what the language asks for.
#pragma once

#include <atomic>

namespace softhca::device {

template <class T>
class RelaxedHint {
public:
    RelaxedHint() = default;
    RelaxedHint(T value) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor)
    RelaxedHint(const RelaxedHint& other) noexcept : value_(T{other}) {}
    operator T() const noexcept {  // NOLINT(google-explicit-constructor)
        return value_.load(std::memory_order_relaxed);
    }
    // One writer at a time: the thread that holds the lock.
    T operator=(T value) noexcept {  // NOLINT(misc-unconventional-assign-operator)
        value_.store(value, std::memory_order_relaxed);
        return value;
    }
    RelaxedHint& operator=(const RelaxedHint& other) noexcept {
        *this = T{other};
        return *this;
    }
    T operator+=(T more) noexcept { return *this = static_cast<T>(T{*this} + more); }

private:
    std::atomic<T> value_;
    static_assert(std::atomic<T>::is_always_lock_free);  // it may lie in shared memory
};

}  // namespace softhca::device
