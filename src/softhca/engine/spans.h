// SPDX-License-Identifier: BSD-2-Clause
// From (key, address, length) to bytes that can be copied. A span is a contiguous range of one
// process's memory. If it is shared, or part of a WQE, loads and stores reach it. Otherwise only
// the kernel reaches it, by its address in the owner's address space.
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"
#include "softhca/device/peers.h"

namespace softhca::engine {

struct Span {
    std::byte* pointer;     // nullptr: only the kernel reaches it
    std::uint64_t address;  // in the owner's address space; 0 for inline data
    std::size_t length;

    // What goes there is gone: the null region (ibv_alloc_null_mr(3)).
    static constexpr std::uint64_t kNowhere = ~0ull;
    bool is_nowhere() const noexcept { return pointer == nullptr && address == kNowhere; }
    // The rest of it, without its first bytes.
    Span from(std::size_t offset) const noexcept {
        return {pointer != nullptr ? pointer + offset : nullptr,
                is_nowhere() ? kNowhere : address + offset, length - offset};
    }
};

// The bytes of a data segment, from its field byte_count (PRM: zero means 2 GiB).
inline std::uint64_t segment_bytes(std::uint32_t byte_count) noexcept {
    return byte_count != 0 ? byte_count : std::uint64_t{1} << 31;
}

// Enough for a WQE of 63 16-byte units whose SGEs all lie across two extents. A list grows beyond
// that only for indirect memory keys (mkeys.h).
inline constexpr unsigned kUsualSpans = 128, kMaxSpans = 1u << 20;

class SpanList {
public:
    SpanList() noexcept = default;
    ~SpanList() { clear(0); }
    SpanList(const SpanList&) = delete;
    SpanList& operator=(const SpanList&) = delete;

    // False: there is no room for `more` spans, nor memory for it.
    bool has_room(unsigned more = 1) noexcept { return more <= room_ - count || grow(more); }
    void add(std::byte* pointer, std::uint64_t address, std::size_t length) noexcept {
        SOFTHCA_DEBUG_ASSERT(count < room_, "callers ask has_room()");
        spans[count++] = {pointer, address, length};
        bytes += length;
    }
    // Empties the list, for memory of that process.
    void clear(std::uint32_t its_process) noexcept {
        if (spans != usual_) forget();
        process = its_process;
        count = 0;
        bytes = 0;
    }
    // Takes back what was added since the list had these numbers.
    void cut(unsigned to_count, std::size_t to_bytes) noexcept {
        SOFTHCA_DEBUG_ASSERT(to_count <= count && to_bytes <= bytes, "lists only grow");
        count = to_count;
        bytes = to_bytes;
    }

    std::uint32_t process = 0;  // slot of the owner
    unsigned count = 0;
    std::size_t bytes = 0;
    Span* spans = usual_;

private:
    [[gnu::cold]] bool grow(unsigned more) noexcept;
    [[gnu::cold]] void forget() noexcept;

    unsigned room_ = kUsualSpans;
    Span usual_[kUsualSpans];
};

enum class Access { kOk, kBadKey, kBadDomain, kBadBounds, kBadRights, kTooMany };

// Adds [address, +length) of the region that `key` names to `list`, after the checks of IBTA 10.6:
// key, protection domain, bounds, rights (IBV_ACCESS_*). The caller is inside an epoch.
Access resolve(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd, std::uint64_t address,
               std::uint64_t length, std::uint32_t rights, SpanList& list) noexcept;

// The shared extent of a region that one user resolved last, always for the same rights. Programs
// use one extent for many messages. It is valid while the region is unchanged and its owner's arena
// is mapped in the same place; both are checked at each use.
struct Reach {
    const device::MemoryRegion* region = nullptr;
    std::uint32_t key = 0, generation = 0, pd = 0;
    const device::peers::Mapping* mapping = nullptr;
    const std::byte* mapped = nullptr;
    std::uint64_t address = 0, length = 0;  // in the addresses of the key's user
    std::byte* at = nullptr;

    [[gnu::always_inline]] bool covers(std::uint32_t its_key, std::uint32_t its_pd,
                                       std::uint64_t from, std::uint64_t bytes) const noexcept {
        const std::uint64_t into = from - address;
        return key == its_key && pd == its_pd && into <= length && bytes <= length - into &&
               region && region->head.live() && region->head.generation == generation &&
               mapping->base.load(std::memory_order_acquire) == mapped;
    }
};

// Where a range that lies wholly in one shared extent is mapped here. nullptr for anything else,
// including errors. `reach` is the caller's, for these rights.
[[gnu::cold, gnu::noinline]] std::byte* resolve_shared_slow(
    device::Fabric& fabric, std::uint32_t key, std::uint32_t pd, std::uint64_t address,
    std::uint64_t length, std::uint32_t rights, Reach& reach) noexcept;
[[gnu::always_inline]] inline std::byte* resolve_shared(device::Fabric& fabric, std::uint32_t key,
                                                        std::uint32_t pd, std::uint64_t address,
                                                        std::uint64_t length, std::uint32_t rights,
                                                        Reach& reach) noexcept {
    if (reach.covers(key, pd, address, length)) return reach.at + (address - reach.address);
    return resolve_shared_slow(fabric, key, pd, address, length, rights, reach);
}

enum class Moved { kOk, kSourceFault, kTargetFault, kRefused, kGone };

// Copies source to target, byte for byte, up to the shorter length. The last bytes of each span are
// stored last, because programs poll the end of a buffer. At least one side belongs to this
// process.
Moved move(device::Fabric& fabric, const SpanList& source, const SpanList& target) noexcept;

// memcpy whose last eight bytes are stored last, by one store.
void copy_ordered(std::byte* to, const std::byte* from, std::size_t length) noexcept;

// memcpy for a few bytes, inline, because most messages in a CQE are one number.
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
