// SPDX-License-Identifier: BSD-2-Clause
// Descriptors of a program that did not ask for FI_MR_LOCAL. It may pass any value with an
// operation, and need not pass one. A program that registers its buffers all the same and passes
// their descriptors (Open MPI's btl/ofi) spares the look-up in the registration cache, and what
// that asks the kernel.
#pragma once

#include <rdma/fi_domain.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "heddle/detail/assert.h"
#include "protocol/transport/domain.h"

namespace heddle::provider {

// Which addresses are those of open regions of a domain. A region may be forgotten, if another one
// has its place; then its descriptor is ignored. Thread-safe: a place is written by threads that
// open and close regions, with release, and read by those that move data, with acquire.
class KnownRegions {
public:
    using Handle = protocol::RegionHandle;

    void add(const Handle& region) noexcept {
        place(&region).store(&region, std::memory_order_release);
    }
    void remove(const Handle& region) noexcept {
        const Handle* expected = &region;
        place(&region).compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
    }
    // Whether `descriptor` is that of an open region in which all of the buffer lies, and which the
    // device may write to, if it is to. Does not follow any other pointer.
    bool holds(const void* descriptor, const iovec& buffer, bool written) const noexcept {
        if (descriptor == nullptr) return false;
        // As programs have it: fi_mr_desc() of a region is its fid_mr.
        const auto* const region =
            static_cast<const Handle*>(static_cast<const fid_mr*>(descriptor));
        if (place(region).load(std::memory_order_acquire) != region) return false;
        const auto begin = reinterpret_cast<std::uintptr_t>(buffer.iov_base);
        const std::uintptr_t offset = begin - region->address;  // huge, if it begins before it
        return offset <= region->bytes && buffer.iov_len <= region->bytes - offset &&
               (region->is_writable || !written);
    }

private:
    static constexpr std::size_t kPlaces = 256;
    using Places = std::array<std::atomic<const Handle*>, kPlaces>;

    static std::size_t number(const Handle* region) noexcept {
        // Fibonacci hashing: allocations are some multiple of 16 bytes apart.
        const std::uint64_t mixed =
            (reinterpret_cast<std::uintptr_t>(region) >> 4) * 0x9e3779b97f4a7c15;
        const std::size_t found = mixed >> 56;
        HEDDLE_DEBUG_ASSERT(found < kPlaces, "eight bits number the places");
        return found;
    }
    std::atomic<const Handle*>& place(const Handle* region) noexcept {
        return places_[number(region)];
    }
    const std::atomic<const Handle*>& place(const Handle* region) const noexcept {
        return places_[number(region)];
    }

    Places places_{};
};

}  // namespace heddle::provider
