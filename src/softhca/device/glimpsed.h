// SPDX-License-Identifier: BSD-2-Clause
// A value that belongs to whoever holds a certain lock, and at which others look without it: what
// they see may be old the next moment, so it only tells them whether to take the lock. A relaxed
// load or store is a plain one to the processor; the language must know of it all the same.
#pragma once

#include <atomic>

namespace softhca::device {

template <class T>
class Glimpsed {
public:
    Glimpsed() = default;
    Glimpsed(T value) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor)
    Glimpsed(const Glimpsed& other) noexcept : value_(T{other}) {}
    operator T() const noexcept {  // NOLINT(google-explicit-constructor)
        return value_.load(std::memory_order_relaxed);
    }
    // One writer at a time, who holds the lock.
    T operator=(T value) noexcept {  // NOLINT(misc-unconventional-assign-operator)
        value_.store(value, std::memory_order_relaxed);
        return value;
    }
    Glimpsed& operator=(const Glimpsed& other) noexcept {
        *this = T{other};
        return *this;
    }
    T operator+=(T more) noexcept { return *this = static_cast<T>(T{*this} + more); }

private:
    std::atomic<T> value_;
    static_assert(std::atomic<T>::is_always_lock_free);  // it may lie in shared memory
};

}  // namespace softhca::device
