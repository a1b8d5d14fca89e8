// SPDX-License-Identifier: BSD-2-Clause
// Which buffers of an endpoint are worth being registered ("Exploiting application buffer reuse",
// section 3): a buffer that was used often enough is, and from then on moved from, or to, where it
// stands instead of by a copy. How often is enough follows from what registering and copying cost
// here (reuse_costs.h). A registration that is gone - unmapped memory, or others needed the room -
// is seen before each use, and the buffer begins anew.
//
// One of an endpoint for sources and one for destinations. One thread.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "heddle/detail/assert.h"
#include "memory/registration_cache.h"
#include "memory/reuse_table.h"
#include "protocol/common/slot_pool.h"
#include "protocol/reuse/reuse_costs.h"

namespace heddle::protocol {

struct ReuseCounts {
    std::uint64_t uses = 0;                   // that were looked up
    std::uint64_t frequent = 0;               // of buffers that are registered: no copy
    std::uint64_t promoted = 0, refused = 0;  // buffers that were registered, or could not be
    std::uint64_t gone = 0, aged = 0;         // that are no more: unmapped or evicted; not used
    std::uint64_t entries = 0, used = 0, rests = 0;  // of the table
    std::array<std::uint64_t, 17> by_uses{};         // of the table, see there
    ReuseCounts& operator+=(const ReuseCounts& other) noexcept;
};

class Reuse {
public:
    static constexpr std::size_t kLeastBytes = 128;  // section 4.1: below it nothing is gained
    static constexpr std::uint32_t kMostFrequent = 4096;

    // A buffer that is registered.
    struct Buffer : PoolSlot<Buffer> {
        std::uint32_t key() const noexcept {
            HEDDLE_DEBUG_ASSERT(in_use && region != nullptr, "the buffer is not registered");
            return region->local_key();
        }

        memory::RegistrationCache::Region* region = nullptr;
        const void* address = nullptr;
        std::size_t bytes = 0;
        std::uint32_t in_flight = 0;  // counted by the user: it stays registered meanwhile
        std::uint32_t last_epoch = 0;
    };

    // access: what the device may do with it (IBV_ACCESS_...). fewest: uses below which none is
    // registered.
    Reuse(memory::RegistrationCache& cache, int access, std::uint32_t fewest)
        : cache_(cache), access_(access), fewest_(fewest) {}
    Reuse(const Reuse&) = delete;
    Reuse& operator=(const Reuse&) = delete;
    ~Reuse();

    // One more use of a buffer of kLeastBytes or more. nullptr: the caller copies. uses_for(bytes):
    // so many are enough; asked for after the fewest. By value: so it needs no memory, which
    // would be written at each use.
    template <class UsesFor>
    [[gnu::always_inline]] Buffer* use(const void* address, std::size_t bytes,
                                       UsesFor uses_for) noexcept {
        HEDDLE_DEBUG_ASSERT(bytes >= kLeastBytes, "smaller buffers are copied without a look");
        memory::ReuseTable::Entry* const entry = table_.use(address, bytes);
        if (entry == nullptr || (entry->value == 0 && entry->uses() < fewest_)) [[likely]]
            return nullptr;
        return known(*entry, address, bytes, uses_for);
    }
    // When it is known.
    void set_fewest(std::uint32_t uses) noexcept { fewest_ = uses; }
    // Registrations that are gone, or were not used for long, end: also after
    // RegistrationCache::give_up_held().
    void sweep() noexcept;
    ReuseCounts counts() const noexcept;

private:
    template <class UsesFor>
    [[gnu::noinline]] Buffer* known(memory::ReuseTable::Entry& entry, const void* address,
                                    std::size_t bytes, UsesFor uses_for) noexcept {
        if (entry.value == 0) {
            if (entry.uses() < uses_for(bytes)) return nullptr;
            return promote(entry, address, bytes);
        }
        return frequent(entry, address, bytes);
    }
    Buffer* frequent(memory::ReuseTable::Entry& entry, const void* address,
                     std::size_t bytes) noexcept;
    Buffer* promote(memory::ReuseTable::Entry& entry, const void* address,
                    std::size_t bytes) noexcept;
    void end(Buffer& buffer) noexcept;

    memory::RegistrationCache& cache_;
    const int access_;
    std::uint32_t fewest_;
    memory::ReuseTable table_;
    SlotPool<Buffer> buffers_;  // an entry's value: index + 1
    std::uint32_t live_ = 0;    // of these
    std::uint32_t swept_ = 0;
    ReuseCounts counts_;
};

}  // namespace heddle::protocol
