// SPDX-License-Identifier: BSD-2-Clause
// Registrations of application memory that outlive the operation they were made for, until it is
// unmapped (address_monitor.h), others need the room, or the cache ends. Memory stays registered
// from its second use on ("Exploiting application buffer reuse", section 3.5), and from its first
// while such registrations are mostly found again: most programs have the same buffers all the
// time. Where the kernel cannot tell of changes, or not of all changes of that memory (mapping.h),
// it is registered for each operation.
//
// A registration grants the access that its first user asked for, and no more: a user that needs
// more gets another registration. One that was made for a single operation covers the bytes of that
// operation and ends with it, and its keys with it. One that stays covers whole pages.
//
// A cache belongs to one protection domain. Any thread may use it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>

#include "memory/address_monitor.h"
#include "memory/recent_marks.h"

namespace heddle::memory {

// Takes whole pages from the system and gives none back before its end. Containers that change
// under the monitor's mutex need that.
class KeptPages final : public std::pmr::memory_resource {
public:
    KeptPages() = default;
    KeptPages(const KeptPages&) = delete;
    KeptPages& operator=(const KeptPages&) = delete;
    ~KeptPages() override;

private:
    struct Chunk {
        Chunk* next;
        std::size_t bytes;
    };
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void*, std::size_t, std::size_t) override {}
    bool do_is_equal(const memory_resource& other) const noexcept override {
        return this == &other;
    }
    Chunk* chunks_ = nullptr;
};

struct CacheCounts {
    std::uint64_t hits = 0;           // operations that found their memory registered
    std::uint64_t registrations = 0;  // made, that stayed or not
    std::uint64_t kept = 0;           // registrations that stayed
    std::uint64_t evictions = 0;      // that made room for others
    std::uint64_t invalidations = 0;  // ended as memory was unmapped or thrown away
    std::uint64_t bytes = 0;          // registered now, in the cache
    std::uint64_t regions = 0;        // in the cache now

    CacheCounts& operator+=(const CacheCounts& other) noexcept;
};

class RegistrationCache final : AddressMonitor::Listener {
public:
    // One registration. A caller that gets it from get() may use it until put().
    class Region {
    public:
        std::uint32_t local_key() const noexcept { return mr_->lkey; }
        std::uint32_t remote_key() const noexcept { return mr_->rkey; }
        // It has left the cache: its memory is gone, or others needed the room. Any thread that
        // holds it may ask, after monitor().settled() has said yes.
        bool gone() const noexcept { return !listed_.load(std::memory_order_acquire); }

    private:
        friend class RegistrationCache;
        std::uintptr_t begin_ = 0, end_ = 0;  // whole pages, if it may stay
        int access_ = 0;
        ibv_mr* mr_ = nullptr;
        // Under the monitor's mutex, up to listed_. Each holder is a user, too.
        std::uint32_t users_ = 0, holders_ = 0;
        bool is_guess_ = false;  // it stays since its first use, and has not been found since
        std::atomic<bool> listed_{false};  // in regions_; written under the mutex, see gone()
        Region *newer_ = nullptr, *older_ = nullptr;
    };

    // most_bytes: the most bytes that stay registered; 0: none.
    // report: if nothing can be kept, the cache calls it once, with the reason
    // (AddressMonitor::why_not()), at the first registration that would be kept.
    // optional_access: what get() and hold() ask of the device beside the access that they are
    // given. With IBV_ACCESS_RELAXED_ORDERING users learn only by a completion that bytes are
    // there.
    using Report = std::function<void(const std::string& why)>;
    RegistrationCache(std::shared_ptr<AddressMonitor> monitor, ibv_pd* pd, std::size_t most_bytes,
                      Report report = {}, int optional_access = 0);
    ~RegistrationCache() override;

    // A registration of these bytes with at least that access (IBV_ACCESS_...), until put().
    // nullptr with errno set if it could not be registered.
    Region* get(const void* address, std::size_t bytes, int access) noexcept;
    void put(Region* region) noexcept;

    // Like get(), for a caller that uses a region again and again without asking, until release().
    // The region is one that stays, and it may be used as long as it is not gone(). It can go while
    // it is held. nullptr: it cannot stay (errno: EOPNOTSUPP), or could not be registered.
    Region* hold(const void* address, std::size_t bytes, int access) noexcept;
    void release(Region* region) noexcept;
    // ibv_reg_mr() with that access alone; the caller owns the result. While the process may lock
    // no more memory (ENOMEM), regions that nobody uses make room. nullptr: errno.
    ibv_mr* reg_mr(std::uintptr_t begin, std::size_t bytes, int access) noexcept;
    // If that was not enough: regions that are only held are gone(), and end when their holders
    // release them.
    void give_up_held() noexcept;
    const AddressMonitor& monitor() const noexcept { return *monitor_; }

    CacheCounts counts() const noexcept;

private:
    static constexpr std::size_t kMostRegions = 8192, kRemembered = 512;
    static constexpr int kFirstTrust = 4, kMostTrust = 8;

    void gone(std::uintptr_t begin, std::uintptr_t end) noexcept override;
    bool wants(std::uintptr_t begin, std::uintptr_t end) const noexcept override;
    void end_gone() noexcept override;
    // Calls look() under the mutex, then ends without it the regions whose memory had gone. True:
    // there were some.
    template <class Look>
    bool look_up(const Look& look) noexcept;
    void drop(Region* region, bool held) noexcept;
    bool give_way(std::size_t bytes) noexcept;
    Region* make(std::uintptr_t begin, std::uintptr_t end, int access) noexcept;
    void report_once() noexcept;
    bool can_stay(std::uintptr_t begin, std::uintptr_t end) noexcept;
    Region* add(std::uintptr_t at, std::size_t bytes, int access, bool is_guess) noexcept;
    void end(Region* region) noexcept;
    void end_all(Region* dead) noexcept;
    // Under the mutex:
    Region* find(std::uintptr_t begin, std::uintptr_t end, int access) noexcept;
    void use(Region& region) noexcept;
    void guessed(bool well) noexcept;
    void list(Region& region) noexcept;
    void unlist(Region& region) noexcept;
    Region* make_room(std::size_t bytes) noexcept;
    void evict(Region& region, Region*& dead) noexcept;
    void newest(Region& region) noexcept;
    void unlink(Region& region) noexcept;

    const std::shared_ptr<AddressMonitor> monitor_;
    ibv_pd* const pd_;
    const std::size_t most_bytes_;
    const Report report_;
    const int optional_access_;
    std::atomic_flag reported_;  // any thread

    // The monitor's mutex guards all of these. No memory is given back under it, so the map's nodes
    // come from a pool that keeps what it has.
    KeptPages pages_;
    std::pmr::unsynchronized_pool_resource pool_{&pages_};
    std::pmr::multimap<std::uintptr_t, Region*> regions_{&pool_};  // by begin; may overlap
    std::uintptr_t longest_ = 0;                    // bytes of the longest region there ever was
    Region *newest_ = nullptr, *oldest_ = nullptr;  // of regions_, by use
    // A list of regions whose memory is gone and that nobody uses. The next call ends them without
    // the mutex, or the monitor's second thread does within AddressMonitor::kEndingDelayMs.
    Region* dead_ = nullptr;
    RecentMarks<kRemembered> seen_;
    int trust_ = kFirstTrust;  // 0 to kMostTrust; above 0, memory stays from its first use on
    CacheCounts counts_;
};

}  // namespace heddle::memory
