// SPDX-License-Identifier: BSD-2-Clause
// From (key, address, length) to bytes that can be copied. A span is a piece of one process's
// memory: reachable by loads and stores when it is shared (or part of a work queue entry), else
// only through the kernel by its address in the owner's address space.
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

struct Span {
    std::byte* pointer;     // or nullptr
    std::uint64_t address;  // in the owner's address space; 0 for inline data
    std::size_t length;
};

// Enough for a WQE of 63 16-byte units whose entries all lie across two extents.
inline constexpr unsigned kMaxSpans = 128;

struct SpanList {
    std::uint32_t process = 0;  // slot of the owner
    unsigned count = 0;
    std::size_t bytes = 0;
    Span spans[kMaxSpans];

    void add(std::byte* pointer, std::uint64_t address, std::size_t length) noexcept {
        spans[count++] = {pointer, address, length};
        bytes += length;
    }
    bool full() const noexcept { return count == kMaxSpans; }
};

enum class Access { kOk, kBadKey, kBadDomain, kBadBounds, kBadRights, kTooMany };

// Adds [address, +length) of the region that `key` names to `list`, after the checks of IBTA 10.6:
// key, protection domain, bounds, rights (IBV_ACCESS_*). The caller is inside an epoch.
Access resolve(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd, std::uint64_t address,
               std::uint64_t length, std::uint32_t rights, SpanList& list) noexcept;

// The same for what is wholly in one shared piece: where that is mapped here. nullptr for all else,
// errors too.
std::byte* resolve_shared(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                          std::uint64_t address, std::uint64_t length,
                          std::uint32_t rights) noexcept;

enum class Moved { kOk, kSourceFault, kTargetFault, kRefused, kGone };

// Copies source to target, byte for byte, as many as the shorter has; the last bytes of each piece
// are stored last (programs poll on the end of a buffer). At least one side is this process's.
Moved move(device::Fabric& fabric, const SpanList& source, const SpanList& target) noexcept;

// memcpy whose last eight bytes are stored last, by one store.
void copy_ordered(std::byte* to, const std::byte* from, std::size_t length) noexcept;

// memcpy for a few bytes, inline: most messages that travel in a CQE are one number.
inline void copy_few(void* to, const void* from, std::size_t length) noexcept {
    const auto overlapping = [&](auto word) {
        auto last = word;
        memcpy(&word, from, sizeof word);
        memcpy(&last, static_cast<const std::byte*>(from) + length - sizeof last, sizeof last);
        memcpy(to, &word, sizeof word);
        memcpy(static_cast<std::byte*>(to) + length - sizeof last, &last, sizeof last);
    };
    if (length > 16 || length < 4)
        memcpy(to, from, length);
    else if (length >= 8)
        overlapping(std::uint64_t{});
    else
        overlapping(std::uint32_t{});
}

}  // namespace softhca::engine
