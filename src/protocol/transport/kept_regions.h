// SPDX-License-Identifier: BSD-2-Clause
// Registrations of programs that register the same memory again and again, as Open MPI does around
// each put and get where it has no cache of its own. From the second time on such a registration
// outlives fi_close(3), and the next fi_mr_reg(3) of exactly these bytes with that access has it,
// with the same key. It ends when its memory is unmapped or thrown away, when others need the room,
// and with the domain.
//
// That memory is what it was is what the registration cache knows: a region of its own, held for
// as long, is gone() when it is not.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "memory/recent_marks.h"
#include "memory/registration_cache.h"
#include "verbs/handles.h"

namespace heddle::protocol {

class KeptRegions {
public:
    // Which registration: exactly these bytes, with that access (IBV_ACCESS_...).
    struct Key {
        std::uintptr_t address = 0;
        std::size_t bytes = 0;
        int access = 0;
        bool operator==(const Key&) const = default;
    };

    // most_bytes: that are kept at once; 0: nothing is.
    KeptRegions(memory::RegistrationCache& cache, std::size_t most_bytes) noexcept
        : cache_(cache), most_bytes_(most_bytes) {}
    ~KeptRegions() { end_all(); }
    KeptRegions(const KeptRegions&) = delete;
    KeptRegions& operator=(const KeptRegions&) = delete;

    struct Release {
        memory::RegistrationCache* cache;
        void operator()(memory::RegistrationCache::Region* region) const noexcept {
            cache->release(region);
        }
    };
    struct Held {
        verbs::MemoryRegion region;  // take() found none: the caller registers the memory
        // The same memory, held since before it was registered. nullptr: the region ends with its
        // user.
        std::unique_ptr<memory::RegistrationCache::Region, Release> witness{nullptr, {}};
    };
    // Before each registration.
    Held take(const Key& key);
    // When it ends: it is kept, or ends.
    void give(const Key& key, Held held);
    void end_all() noexcept;

private:
    static constexpr std::size_t kMost = 64, kRemembered = 256;

    struct Kept : Held {
        Key key;
    };
    using List = std::list<Kept>;

    // Under the mutex. The caller ends `ended` without it.
    void take_out(List::iterator which, List& ended) noexcept;
    void take_gone(List& ended) noexcept;

    memory::RegistrationCache& cache_;
    const std::size_t most_bytes_;
    std::mutex mutex_;
    List kept_;              // the newest first
    std::size_t bytes_ = 0;  // of them
    memory::RecentMarks<kRemembered> seen_;
};

}  // namespace heddle::protocol
