// SPDX-License-Identifier: BSD-2-Clause
// Messages of the protocol as bytes, for tests of what parse accepts.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "protocol/wire/wire.h"

namespace heddle::protocol::test {

inline constexpr std::uint64_t kMost64 = ~std::uint64_t{0};

// Concatenates bytes.
class Bytes {
public:
    explicit Bytes(Kind kind, unsigned flags = 0) {
        Header header;
        header.kind = kind;
        header.flags = static_cast<std::uint8_t>(flags);
        header.source = 3;
        header.destination = 4;
        header.sequence = 0xfffe;
        header.tag = 0x0123456789abcdef;
        add(header);
    }
    template <class T>
    Bytes& add(const T& value) {
        const std::size_t at = bytes_.size();
        bytes_.resize(at + sizeof value);
        std::memcpy(bytes_.data() + at, &value, sizeof value);
        return *this;
    }
    Bytes& fill(std::size_t count) {
        bytes_.resize(bytes_.size() + count, std::byte{0xab});
        return *this;
    }
    std::size_t size() const { return bytes_.size(); }

    // In memory of exactly that size, at every alignment: a sanitizer finds a read beyond the end.
    bool parses(Message& out, bool has_immediate = false, std::size_t size = kMost64) const {
        if (size == kMost64) size = bytes_.size();
        bool good = false;
        for (std::size_t shift = 0; shift < 8; ++shift) {
            copy_ = std::make_unique<std::byte[]>(shift + size);
            std::memcpy(copy_.get() + shift, bytes_.data(), size);
            const bool now = parse({copy_.get() + shift, size}, has_immediate, 0xfedcba98, out);
            EXPECT_TRUE(shift == 0 || now == good) << "at another address";
            good = now;
        }
        return good;
    }
    bool parses(bool has_immediate = false) const {
        Message out;
        return parses(out, has_immediate);
    }
    // No shorter or longer bytes are a message.
    void expect_exact() const {
        Message out;
        EXPECT_TRUE(parses(out));
        for (std::size_t size = 0; size < bytes_.size(); ++size)
            EXPECT_FALSE(parses(out, false, size)) << size << " bytes";
        EXPECT_FALSE(Bytes(*this, 1).parses());
    }

private:
    Bytes(const Bytes& other, std::size_t more) : bytes_(other.bytes_) { fill(more); }
    std::vector<std::byte> bytes_;
    mutable std::unique_ptr<std::byte[]> copy_;  // of the last parse: payloads point into it
};

inline RtsBody rts(std::uint64_t bytes, std::uint32_t segments) {
    RtsBody body;
    body.operation = 77;
    body.bytes = bytes;
    body.segments = segments;
    return body;
}

inline SegmentBody segment(std::uint64_t address, std::uint64_t bytes) {
    SegmentBody it;
    it.address = address;
    it.bytes = bytes;
    it.key = 5;
    return it;
}

}  // namespace heddle::protocol::test
