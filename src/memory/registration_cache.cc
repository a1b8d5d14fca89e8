// SPDX-License-Identifier: BSD-2-Clause
#include "memory/registration_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "heddle/detail/assert.h"
#include "memory/mapping.h"

namespace heddle::memory {
namespace {

constexpr std::size_t kChunk = 1 << 16;

struct Range {
    std::uintptr_t begin, end;
};
// userfaultfd takes whole pages, which have 64 KiB on some kernels.
Range whole_pages(std::uintptr_t at, std::size_t bytes) noexcept {
    static const auto mask = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1;
    return {at & ~mask, (at + bytes + mask) & ~mask};
}

}  // namespace

void* KeptPages::do_allocate(std::size_t bytes, std::size_t alignment) {
    constexpr std::size_t kHead = 64;  // bytes before the memory of a chunk
    static_assert(sizeof(Chunk) <= kHead);
    HEDDLE_ASSERT(alignment <= kHead, "the head of a chunk keeps the alignment");
    const std::size_t whole = (bytes + kHead + kChunk - 1) & ~(kChunk - 1);
    void* const pages =
        ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    chunks_ = new (pages) Chunk{chunks_, whole};
    return static_cast<std::byte*>(pages) + kHead;
}

KeptPages::~KeptPages() {
    while (chunks_ != nullptr) {
        const Chunk chunk = *chunks_;
        ::munmap(chunks_, chunk.bytes);
        chunks_ = chunk.next;
    }
}

CacheCounts& CacheCounts::operator+=(const CacheCounts& other) noexcept {
    hits += other.hits;
    registrations += other.registrations;
    kept += other.kept;
    evictions += other.evictions;
    invalidations += other.invalidations;
    bytes += other.bytes;
    regions += other.regions;
    return *this;
}

RegistrationCache::RegistrationCache(std::shared_ptr<AddressMonitor> monitor, ibv_pd* pd,
                                     std::size_t most_bytes, Report report, int optional_access)
    : monitor_(std::move(monitor)),
      pd_(pd),
      most_bytes_(most_bytes),
      report_(std::move(report)),
      optional_access_(optional_access) {
    monitor_->add(*this);
}

RegistrationCache::~RegistrationCache() {
    monitor_->remove(*this);
    Region* dead = nullptr;
    {
        const std::scoped_lock lock(monitor_->mutex());
        while (oldest_ != nullptr) {
            Region& region = *oldest_;
            unlist(region);
            region.older_ = dead;
            dead = &region;
        }
        HEDDLE_ASSERT(
            newest_ == nullptr && regions_.empty() && counts_.regions == 0 && counts_.bytes == 0,
            "the map, the list and the counts have the same regions");
    }
    end_all(dead);
    end_all(dead_);
}

template <class Look>
bool RegistrationCache::look_up(const Look& look) noexcept {
    Region* dead = nullptr;
    {
        const std::scoped_lock lock(monitor_->mutex());
        std::swap(dead, dead_);
        look();
    }
    end_all(dead);
    return dead != nullptr;
}

void RegistrationCache::end_gone() noexcept {
    look_up([] {});
}

RegistrationCache::Region* RegistrationCache::get(const void* address, std::size_t bytes,
                                                  int access) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (most_bytes_ == 0) return make(at, at + bytes, access);
    const auto [begin, end] = whole_pages(at, bytes);
    Region* found = nullptr;
    bool may_stay = false, is_guess = false;
    // Not under the mutex, where no memory may be given back.
    const bool alone = ProgramThreads::only_caller();
    look_up([&, begin = begin, end = end] {
        found = find(begin, end, access);
        if (found != nullptr && !alone && monitor_->unmapping()) {
            // Its memory may be gone, so this operation gets a registration of its own.
            found = nullptr;
        } else if (found != nullptr) {
            HEDDLE_DEBUG_ASSERT(found->listed_ && found->begin_ <= begin && found->end_ >= end,
                                "a region that is found has all the bytes");
            use(*found);
            ++counts_.hits;
        } else if (end - begin <= most_bytes_) {
            is_guess = !seen_.seen_before(begin ^ (end << 20) ^ static_cast<std::uint64_t>(access));
            if (!is_guess) guessed(true);
            may_stay = trust_ > 0;
        }
    });
    if (found != nullptr) return found;
    return may_stay ? add(at, bytes, access, is_guess) : make(at, at + bytes, access);
}

// Another user has found the region.
void RegistrationCache::use(Region& region) noexcept {
    ++region.users_;
    if (std::exchange(region.is_guess_, false)) guessed(true);
}

// Memory that was used has been used again, or went before that. What goes unused costs its program
// a wait for the monitor, so each such region counts twice.
void RegistrationCache::guessed(bool well) noexcept {
    trust_ = well ? std::min(trust_ + 1, kMostTrust) : std::max(trust_ - 2, 0);
}

void RegistrationCache::put(Region* region) noexcept { drop(region, false); }

RegistrationCache::Region* RegistrationCache::hold(const void* address, std::size_t bytes,
                                                   int access) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto [begin, end] = whole_pages(at, bytes);
    if (end - begin > most_bytes_) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    Region* region = nullptr;
    look_up([&, begin = begin, end = end] {
        region = find(begin, end, access);
        if (region != nullptr) use(*region);
    });
    if (region == nullptr) region = add(at, bytes, access, false);
    if (region == nullptr) return nullptr;
    {
        const std::scoped_lock lock(monitor_->mutex());
        if (region->listed_) {
            ++region->holders_;
            return region;
        }
    }
    put(region);
    errno = EOPNOTSUPP;
    return nullptr;
}

void RegistrationCache::release(Region* region) noexcept { drop(region, true); }

// Ends one use of the region. `held`: the user also holds it.
void RegistrationCache::drop(Region* region, bool held) noexcept {
    bool last = false;
    {
        const std::scoped_lock lock(monitor_->mutex());
        HEDDLE_ASSERT(region->users_ != 0, "a region is given back by a user of it");
        HEDDLE_ASSERT(!held || region->holders_ != 0, "a region is released by a holder of it");
        HEDDLE_ASSERT(held || region->holders_ < region->users_, "a holder calls release()");
        region->holders_ -= held;
        last = --region->users_ == 0 && !region->listed_;
    }
    if (last) this->end(region);
}

CacheCounts RegistrationCache::counts() const noexcept {
    const std::scoped_lock lock(monitor_->mutex());
    return counts_;
}

ibv_mr* RegistrationCache::reg_mr(std::uintptr_t begin, std::size_t bytes, int access) noexcept {
    for (;;) {
        ibv_mr* const mr = ibv_reg_mr(pd_, reinterpret_cast<void*>(begin), bytes, access);
        if (mr != nullptr || errno != ENOMEM) return mr;
        if (give_way(bytes)) continue;
        errno = ENOMEM;
        return nullptr;
    }
}

// A region that is not listed, for one user.
RegistrationCache::Region* RegistrationCache::make(std::uintptr_t begin, std::uintptr_t end,
                                                   int access) noexcept {
    auto* const region = new (std::nothrow) Region;
    if (region == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    region->begin_ = begin;
    region->end_ = end;
    region->access_ = access;
    region->users_ = 1;
    region->mr_ = reg_mr(begin, end - begin, access | optional_access_);
    if (region->mr_ == nullptr) {
        const int error = errno;
        delete region;
        errno = error;
        return nullptr;
    }
    const std::scoped_lock lock(monitor_->mutex());
    ++counts_.registrations;
    return region;
}

void RegistrationCache::report_once() noexcept {
    if (!report_ || reported_.test_and_set()) return;
    try {
        report_(AddressMonitor::why_not());
    } catch (const std::bad_alloc&) {  // then there is no report
    }
}

bool RegistrationCache::can_stay(std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (!is_private_anonymous(begin, end)) return false;
    if (monitor_->ready()) return true;
    report_once();
    return false;
}

// Makes a region that stays: of whole pages, which the monitor can watch. The pages hold bytes of
// an operation that goes on, so the program may not unmap them until the region is listed. Nothing
// is therefore missed between the question whether they can stay, the registration, the watching
// and the list. Memory that cannot stay is registered for one operation: its keys then name the
// bytes of that operation, and no others.
RegistrationCache::Region* RegistrationCache::add(std::uintptr_t at, std::size_t bytes, int access,
                                                  bool is_guess) noexcept {
    const auto [begin, end] = whole_pages(at, bytes);
    if (!can_stay(begin, end)) return make(at, at + bytes, access);
    Region* const region = make(begin, end, access);
    if (region == nullptr) return nullptr;
    region->is_guess_ = is_guess;
    Region* dead = nullptr;
    {
        const std::scoped_lock lock(monitor_->mutex());
        // Evict first, then watch and list: an evicted region may overlap this one, and its
        // eviction ends the watch of all its pages that no listed region covers.
        dead = make_room(end - begin);
        if (monitor_->watch(begin, end)) list(*region);
    }
    end_all(dead);
    return region;
}

// The region's pages are watched already.
void RegistrationCache::list(Region& region) noexcept {
    HEDDLE_ASSERT(!region.listed_ && region.users_ != 0, "a region is listed once, by its user");
    HEDDLE_ASSERT(region.begin_ < region.end_, "a region has bytes");
    try {
        regions_.emplace(region.begin_, &region);
    } catch (const std::bad_alloc&) {
        return;  // stays for this operation only
    }
    region.listed_ = true;
    longest_ = std::max(longest_, region.end_ - region.begin_);
    newest(region);
    ++counts_.kept;
    ++counts_.regions;
    counts_.bytes += region.end_ - region.begin_;
}

RegistrationCache::Region* RegistrationCache::find(std::uintptr_t begin, std::uintptr_t end,
                                                   int access) noexcept {
    const auto serves = [&](const Region& region) {
        return region.begin_ <= begin && region.end_ >= end && (region.access_ & access) == access;
    };
    if (newest_ != nullptr && serves(*newest_)) return newest_;  // a buffer that is used again
    const std::uintptr_t lowest = begin > longest_ ? begin - longest_ : 0;
    for (auto at = regions_.upper_bound(begin); at != regions_.begin();) {
        --at;
        if (at->first < lowest) break;
        Region& region = *at->second;
        if (!serves(region)) continue;
        unlink(region);
        newest(region);
        return &region;
    }
    return nullptr;
}

void RegistrationCache::unlist(Region& region) noexcept {
    HEDDLE_ASSERT(region.listed_, "only a listed region is taken from the list");
    const std::size_t listed = regions_.size();
    for (auto [at, last] = regions_.equal_range(region.begin_); at != last; ++at)
        if (at->second == &region) {
            regions_.erase(at);
            break;
        }
    HEDDLE_ASSERT(regions_.size() == listed - 1, "the map had the region");
    unlink(region);
    region.listed_.store(false, std::memory_order_release);
    HEDDLE_ASSERT(counts_.regions == listed && counts_.bytes >= region.end_ - region.begin_,
                  "the counts have all regions of the map");
    --counts_.regions;
    counts_.bytes -= region.end_ - region.begin_;
    if (region.is_guess_) guessed(false);
    monitor_->unwatch(region.begin_, region.end_);
}

bool RegistrationCache::wants(std::uintptr_t begin, std::uintptr_t end) const noexcept {
    const std::uintptr_t lowest = begin > longest_ ? begin - longest_ : 0;
    for (auto at = regions_.lower_bound(lowest); at != regions_.end() && at->first < end; ++at)
        if (at->second->end_ > begin) return true;
    return false;
}

void RegistrationCache::unlink(Region& region) noexcept {
    HEDDLE_DEBUG_ASSERT((region.newer_ == nullptr) == (newest_ == &region) &&
                            (region.older_ == nullptr) == (oldest_ == &region),
                        "only the ends of the list have no neighbour");
    (region.newer_ != nullptr ? region.newer_->older_ : newest_) = region.older_;
    (region.older_ != nullptr ? region.older_->newer_ : oldest_) = region.newer_;
    region.newer_ = region.older_ = nullptr;
}

void RegistrationCache::newest(Region& region) noexcept {
    HEDDLE_DEBUG_ASSERT(region.newer_ == nullptr && region.older_ == nullptr && &region != newest_,
                        "a region is in the list once");
    region.older_ = newest_;
    region.newer_ = nullptr;
    (newest_ != nullptr ? newest_->newer_ : oldest_) = &region;
    newest_ = &region;
}

// Unlists the least recently used regions until there is room for that many bytes. Returns those
// that nobody holds as a list, which the caller ends without the mutex.
RegistrationCache::Region* RegistrationCache::make_room(std::size_t bytes) noexcept {
    Region* dead = nullptr;
    const std::size_t most = most_bytes_ > bytes ? most_bytes_ - bytes : 0;
    for (Region* at = oldest_;
         at != nullptr && (counts_.bytes > most || counts_.regions >= kMostRegions);) {
        Region& region = *at;
        at = region.newer_;
        evict(region, dead);
    }
    return dead;
}

// Unlists the region, unless an operation uses it. If nobody holds it, adds it to `dead`.
void RegistrationCache::evict(Region& region, Region*& dead) noexcept {
    HEDDLE_ASSERT(region.holders_ <= region.users_, "each holder is a user");
    if (region.users_ != region.holders_) return;
    unlist(region);
    ++counts_.evictions;
    if (region.users_ != 0) return;  // ended by its last holder
    region.older_ = dead;
    dead = &region;
}

// Ends unused regions of at least that many bytes, least recently used first, if there are so many.
// False if there was no unused region.
bool RegistrationCache::give_way(std::size_t bytes) noexcept {
    Region* dead = nullptr;
    std::size_t found = 0;
    const bool some_had_gone = look_up([&] {
        trust_ = 0;  // what stays is what others lack
        for (Region* at = oldest_; at != nullptr && found < bytes;) {
            Region& region = *at;
            at = region.newer_;
            if (region.users_ != 0) continue;
            found += region.end_ - region.begin_;
            evict(region, dead);
        }
    });
    end_all(dead);
    // The monitor's second thread may be about to end regions that have left all lists.
    return dead != nullptr || some_had_gone || monitor_->wait_for_ending();
}

void RegistrationCache::give_up_held() noexcept {
    Region* dead = nullptr;
    look_up([&] {
        for (Region* at = oldest_; at != nullptr;) {
            Region& region = *at;
            at = region.newer_;
            evict(region, dead);
        }
    });
    end_all(dead);
}

void RegistrationCache::gone(std::uintptr_t begin, std::uintptr_t end) noexcept {
    const std::uintptr_t lowest = begin > longest_ ? begin - longest_ : 0;
    for (auto at = regions_.lower_bound(lowest); at != regions_.end() && at->first < end;) {
        Region& region = *at->second;
        ++at;
        if (region.end_ <= begin) continue;
        unlist(region);
        ++counts_.invalidations;
        if (region.users_ != 0) continue;  // ended by its last user
        region.older_ = dead_;
        dead_ = &region;
        monitor_->end_later();
    }
}

void RegistrationCache::end(Region* region) noexcept {
    HEDDLE_ASSERT(!region->listed_, "a region ends after it has left the list");
    ibv_dereg_mr(region->mr_);
    delete region;
}

void RegistrationCache::end_all(Region* dead) noexcept {
    while (dead != nullptr) {
        Region* const region = dead;
        dead = region->older_;
        end(region);
    }
}

}  // namespace heddle::memory
