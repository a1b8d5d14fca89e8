// SPDX-License-Identifier: BSD-2-Clause
// fid_domain: a device of the process, with everything that is opened in it. The threading level
// that the program got says which threads may call at the same time. With FI_THREAD_DOMAIN no lock
// is taken; with every other level each call takes the domain's lock (Guard).
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/rdm_endpoint.h"
#include "protocol/transport/domain.h"
#include "provider/fabric.h"
#include "provider/known_regions.h"
#include "provider/live.h"
#include "provider/object.h"
#include "provider/sleeper.h"
#include "provider/stats.h"

namespace heddle::provider {

struct EventQueue;

struct Domain : fid_domain {
    using Fid = fid_domain;

    Domain(Fabric& fabric, const fi_info& info);
    ~Domain();

    // The members that every call needs come first.
    std::recursive_mutex* lock = nullptr;  // nullptr: one thread at a time calls
    std::uint64_t locks_taken = 0;         // by Guard, under the lock
    std::shared_ptr<Sleepers> sleepers;
    std::vector<protocol::RdmEndpoint*> endpoints;  // enabled ones

    Fabric& fabric;
    std::shared_ptr<protocol::Domain> protocol;
    std::string name;
    std::uint64_t caps = 0;
    bool local_descriptors = false;  // FI_MR_LOCAL was asked for
    KnownRegions known_regions;
    EventQueue* events = nullptr;
    Ref events_ref;
    RefCount refs;

    // The caller of the functions below holds the guard.
    // Makes all endpoints progress. `most`: completions that each endpoint handles.
    void progress(unsigned most = ~0u) {
        for (protocol::RdmEndpoint* each : endpoints)
            each->progress(most);
        if (reports_asked.load(std::memory_order_relaxed) != reports_seen_) [[unlikely]]
            make_report();
        HEDDLE_DEBUG_ASSERT(until_live_ != 0 && until_live_ <= kProgressesUntilLive);
        if (--until_live_ == 0) [[unlikely]]
            show_live();
    }
    // Returns whether an operation is open that a peer must complete.
    bool waits() const noexcept;
    // Arms all endpoints' file descriptors. Returns false if an endpoint has something to do
    // already.
    bool arm();
    void enabled(protocol::RdmEndpoint& endpoint);
    void closing(protocol::RdmEndpoint& endpoint) noexcept;
    // The only endpoint, if the domain has no lock and read_next() may read its messages.
    protocol::EndpointImpl* reads_next = nullptr;
    // Returns a file descriptor that is readable when an endpoint has something to do. The first
    // sleeper creates it.
    int wait_fd();

private:
    void update_reads_next() noexcept;
    void progress_by_itself();
    void make_report();
    void show_live() noexcept {
        until_live_ = kProgressesUntilLive;
        live_.look(*this);
    }
    bool watched(int fd) const noexcept;  // whether an enabled endpoint has this descriptor

    std::recursive_mutex own_lock_;
    FabricRef fabric_ref_;
    Descriptor endpoints_epoll_;
    unsigned reports_seen_ = 0;
    // The clock is read once for so many calls of progress().
    static constexpr unsigned kProgressesUntilLive = 64;
    unsigned until_live_ = 1;
    LiveEndpoints live_;
    // With FI_PROGRESS_AUTO only.
    std::thread progress_thread_;
    Descriptor progress_event_;
    std::atomic<bool> ending_{false};
};

// Held during every call that reaches an endpoint or an object that is bound to one. When it ends,
// it wakes the sleepers whose wait this call has ended.
class Guard {
public:
    explicit Guard(Domain& domain) noexcept : domain_(domain) {
        HEDDLE_DEBUG_ASSERT(domain.sleepers != nullptr);
        if (domain.lock != nullptr) {
            domain.lock->lock();
            ++domain.locks_taken;
        }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
        if (domain_.sleepers->armed != 0) [[unlikely]]
            domain_.sleepers->look();
        if (domain_.lock != nullptr) domain_.lock->unlock();
    }

private:
    Domain& domain_;
};

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) noexcept;

}  // namespace heddle::provider
