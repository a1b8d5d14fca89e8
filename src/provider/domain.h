// SPDX-License-Identifier: BSD-2-Clause
// fid_domain: a part of the process's devices, with everything that is opened in it. Who may call
// at the same time is the threading level that the program was given: with FI_THREAD_DOMAIN no lock
// is taken; with any other, one of the domain, around every call (Guard).
#pragma once

#include <rdma/fi_domain.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "protocol/domain.h"
#include "protocol/rdm_endpoint.h"
#include "provider/fabric.h"
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

    // What calls need first.
    std::recursive_mutex* lock = nullptr;  // nullptr: the program has one thread here
    std::shared_ptr<Sleepers> sleepers;
    std::vector<protocol::RdmEndpoint*> endpoints;  // enabled ones

    Fabric& fabric;
    std::shared_ptr<protocol::Domain> protocol;
    std::string name;
    std::uint64_t caps = 0;
    bool local_descriptors = false;  // FI_MR_LOCAL was asked for
    EventQueue* events = nullptr;
    Ref events_ref;
    RefCount refs;

    // Under the guard:
    void progress(unsigned most = ~0u) {  // `most`: of what has come to an endpoint
        for (protocol::RdmEndpoint* each : endpoints)
            each->progress(most);
        if (reports_asked.load(std::memory_order_relaxed) != reports_seen_) [[unlikely]]
            make_report();
        if (--until_live_ == 0) [[unlikely]]
            show_live();
    }
    // An operation of an endpoint is open that others must bring to its end.
    bool waits() const noexcept;
    // False: an endpoint has something already.
    bool arm();
    void enabled(protocol::RdmEndpoint& endpoint);
    void closing(protocol::RdmEndpoint& endpoint) noexcept;
    // The only endpoint, if there is no lock and its messages may be read by read_next().
    protocol::RdmEndpoint::Body* reads_next = nullptr;
    // Readable when an endpoint of the domain has something to do. Of the first sleeper.
    int wait_fd();

private:
    void look_who_reads() noexcept;
    void progress_by_itself();
    void make_report();
    void show_live() noexcept {
        until_live_ = kProgressesUntilLive;
        live_.look(*this);
    }
    bool watched(int fd) const noexcept;  // of an enabled endpoint

    std::recursive_mutex own_lock_;
    FabricRef fabric_ref_;
    Descriptor endpoints_epoll_;
    unsigned reports_seen_ = 0;
    // So that the clock is not read each time.
    static constexpr unsigned kProgressesUntilLive = 64;
    unsigned until_live_ = 1;
    LiveEndpoints live_;
    // FI_PROGRESS_AUTO
    std::thread progress_thread_;
    Descriptor progress_event_;
    std::atomic<bool> ending_{false};
};

// Around every call that reaches an endpoint or what is bound to one.
class Guard {
public:
    explicit Guard(Domain& domain) noexcept : domain_(domain) {
        if (domain.lock != nullptr) domain.lock->lock();
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
