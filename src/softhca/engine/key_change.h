// SPDX-License-Identifier: BSD-2-Clause
// How the fields of a memory window or an indirect key change together, though no lock guards them:
// a sequence lock. Its number is odd while somebody changes them.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca::engine {

// The right to rewrite such an object, for as long as it lives.
class KeyChange {
public:
    explicit KeyChange(std::atomic<std::uint32_t>& changes) noexcept
        : changes_(changes), before_(changes.load(std::memory_order_relaxed)) {
        has_it_ = (before_ & 1) == 0 &&
                  changes.compare_exchange_strong(before_, before_ + 1, std::memory_order_acquire);
        std::atomic_thread_fence(std::memory_order_release);
    }
    ~KeyChange() {
        if (has_it_) changes_.store(before_ + 2, std::memory_order_release);
    }
    KeyChange(const KeyChange&) = delete;
    KeyChange& operator=(const KeyChange&) = delete;
    explicit operator bool() const noexcept { return has_it_; }

private:
    std::atomic<std::uint32_t>& changes_;
    std::uint32_t before_;
    bool has_it_;
};

// Calls `look` until nothing changed meanwhile. False: the object is being changed all the time, as
// a program must not do while its key is used.
template <class Look>
bool look_at_one_time(const std::atomic<std::uint32_t>& changes, Look look) noexcept {
    constexpr unsigned kTries = 64;
    for (unsigned i = 0; i < kTries; ++i) {
        const std::uint32_t before = changes.load(std::memory_order_acquire);
        if (before & 1) continue;
        look();
        std::atomic_thread_fence(std::memory_order_acquire);
        if (changes.load(std::memory_order_relaxed) == before) return true;
    }
    return false;
}

}  // namespace softhca::engine
