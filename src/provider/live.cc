// SPDX-License-Identifier: BSD-2-Clause
#include "provider/live.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "heddle/detail/assert.h"
#include "provider/domain.h"
#include "provider/live_format.h"

namespace heddle::provider {
namespace {

constexpr std::uint64_t kEvery = 200'000'000;         // ns
constexpr std::uint64_t kUsageEvery = 2'000'000'000;  // each time reads the list of all mappings

std::uint64_t now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

template <std::size_t kBytes>
void put(char (&to)[kBytes], std::string_view text) noexcept {
    std::memcpy(to, text.data(), std::min(text.size(), kBytes - 1));
}

// Returns the rank that the process manager has set: MPICH and Intel MPI, PMIx, Open MPI before 5,
// Slurm.
std::string_view rank() noexcept {
    for (const char* const variable :
         {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
        if (const char* const value = std::getenv(variable)) return value;
    return "";
}

// The segment of the process: one for all of its domains, while any of them has an endpoint.
class Segment {
public:
    explicit Segment(const Domain& domain) noexcept : pid_(getpid()) {
        const int fd = memfd_create(kLiveName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0) return;
        const std::size_t bytes = live_bytes(kLiveSlots);
        // Sealed, so that a reader never gets SIGBUS.
        if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
            void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (memory != MAP_FAILED) header_ = new (memory) LiveHeader;
        }
        if (header_ == nullptr) {
            close(fd);
            return;
        }
        fd_ = fd;
        header_->pid = pid_;
        put(header_->device, domain.protocol->device().name);
        put(header_->category, heddle::name(domain.protocol->category()));
        put(header_->rank, rank());
    }
    ~Segment() {
        if (header_ == nullptr) return;
        munmap(header_, live_bytes(kLiveSlots));
        close(fd_);
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    // A child of fork() has the same memory, which only the parent writes.
    bool ours() const noexcept { return header_ != nullptr && getpid() == pid_; }
    LiveHeader& header() noexcept { return *header_; }
    LiveSlot& slot(std::uint32_t i) noexcept {
        HEDDLE_DEBUG_ASSERT(i < kLiveSlots && header_ != nullptr);
        return reinterpret_cast<LiveSlot*>(header_ + 1)[i];
    }
    // Returns a free slot, or kLiveSlots if there is none.
    std::uint32_t take() noexcept {
        const auto free = std::find(used_.begin(), used_.end(), false);
        if (header_ == nullptr || free == used_.end()) return kLiveSlots;
        *free = true;
        return static_cast<std::uint32_t>(free - used_.begin());
    }
    void give_back(std::uint32_t i) noexcept {
        HEDDLE_ASSERT(i < kLiveSlots && used_[i], "a slot was returned twice");
        used_[i] = false;
        if (ours()) slot(i).block.sequence.store(0, std::memory_order_release);
    }

private:
    const pid_t pid_;
    int fd_ = -1;
    LiveHeader* header_ = nullptr;
    std::array<bool, kLiveSlots> used_{};
};

std::mutex mutex;                  // guards these three and the header's values
std::unique_ptr<Segment> segment;  // never moved while there are users
unsigned users = 0;
std::uint64_t next_usage_ns = 0;

EndpointValues values_of(const protocol::RdmEndpoint& endpoint) noexcept {
    const protocol::EndpointCounts c = endpoint.counts();
    const protocol::EndpointState s = endpoint.state();
    return {c.inlined,    c.eager,
            c.gathered,   c.by_ring,
            c.rendezvous, endpoint.tuple_counts().sent,
            c.rma,        c.atomics,
            c.received,   c.unexpected,
            s.peers,      s.under_way,
            s.held,       s.outstanding_replies,
            s.receives,   s.messages,
            s.tuples_out, s.tuples_in};
}

ProcessValues values_of(const Domain& domain) {
    const Usage u = domain.protocol->usage();
    const memory::CacheCounts m = domain.protocol->cache_counts();
    return {u.contexts,
            u.qps,
            u.cqs,
            u.mrs,
            u.uars.value_or(0),
            u.uuars.value_or(0),
            m.registrations,
            m.hits,
            m.evictions,
            m.invalidations,
            users};
}

}  // namespace

void LiveEndpoints::add(Domain& domain, const protocol::RdmEndpoint& endpoint) {
    shown_.reserve(shown_.size() + 1);
    const std::scoped_lock lock(mutex);
    if (!segment) {
        segment = std::make_unique<Segment>(domain);
        next_usage_ns = 0;
    }
    HEDDLE_ASSERT(std::none_of(shown_.begin(), shown_.end(),
                               [&](const Shown& each) { return each.endpoint == &endpoint; }));
    ++users;
    shown_.push_back({&endpoint, segment->take()});
    if (shown_.back().slot != kLiveSlots)
        segment->slot(shown_.back().slot)
            .endpoint.store(endpoint.name().endpoint, std::memory_order_relaxed);
}

void LiveEndpoints::remove(const protocol::RdmEndpoint& endpoint) noexcept {
    const auto found = std::find_if(shown_.begin(), shown_.end(),
                                    [&](const Shown& each) { return each.endpoint == &endpoint; });
    if (found == shown_.end()) return;
    const std::scoped_lock lock(mutex);
    HEDDLE_ASSERT(segment != nullptr, "a segment as long as endpoints are published");
    if (found->slot != kLiveSlots) segment->give_back(found->slot);
    shown_.erase(found);
    HEDDLE_ASSERT(users != 0);
    if (--users == 0) segment.reset();
}

void LiveEndpoints::look(Domain& domain) noexcept {
    const std::uint64_t now = now_ns();
    if (now < next_ns_ || shown_.empty()) return;
    next_ns_ = now + kEvery;
    if (!segment->ours()) return;
    for (const Shown& each : shown_)
        if (each.slot != kLiveSlots)
            write_live(segment->slot(each.slot).block, values_of(*each.endpoint), now);
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock || now < next_usage_ns) return;
    next_usage_ns = now + kUsageEvery;
    try {
        write_live(segment->header().process, values_of(domain), now);
    } catch (const std::exception&) {  // the device did not answer; the next call tries again
    }
}

}  // namespace heddle::provider
