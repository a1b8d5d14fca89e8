// SPDX-License-Identifier: BSD-2-Clause
// Reading decisions from a fuzzer's input, and saying what was found.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::fuzz {

// Prints the reason and aborts: a finding.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

// The input as a sequence of decisions; zeros once it has ended.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
    bool empty() const { return at_ == end_; }

    void bytes(void* to, std::size_t length) {
        const std::size_t there = std::min(length, static_cast<std::size_t>(end_ - at_));
        std::memset(to, 0, length);
        if (there) std::memcpy(to, at_, there);
        at_ += there;
    }
    template <class T>
    T value() {
        T value;
        bytes(&value, sizeof value);
        return value;
    }
    std::uint8_t byte() { return value<std::uint8_t>(); }
    std::uint32_t word() { return value<std::uint32_t>(); }
    std::uint32_t below(std::uint32_t limit) {
        return limit <= 256 ? byte() % limit : value<std::uint16_t>() % limit;
    }
    bool one_in(std::uint32_t n) { return below(n) == n - 1; }
    template <class T, std::size_t N>
    T pick(const T (&values)[N]) {
        return values[below(N)];
    }

private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

}  // namespace softhca::fuzz
