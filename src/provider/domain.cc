// SPDX-License-Identifier: BSD-2-Clause
// Opens and closes domains, and makes their endpoints progress.
#include "provider/domain.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "protocol/endpoint_impl.h"
#include "provider/atomics.h"
#include "provider/av.h"
#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/endpoint.h"
#include "provider/eq.h"
#include "provider/guarded.h"
#include "provider/host.h"
#include "provider/info.h"
#include "provider/limits.h"
#include "provider/mr.h"
#include "provider/parameters.h"
#include "provider/poll.h"
#include "provider/stats.h"
#include "provider/unsupported.h"
#include "verbs/open_device.h"

namespace heddle::provider {
namespace {

int close_domain(fid* handle) {
    auto& domain = object<Domain>(handle);
    if (domain.refs.any()) return -FI_EBUSY;
    return guarded("fi_close of a domain", [&] {
        domain_closing(domain);
        delete &domain;
        return 0;
    });
}

int bind_domain(fid* handle, fid* other, std::uint64_t flags) {
    auto& domain = object<Domain>(handle);
    if (other->fclass != FI_CLASS_EQ) return -FI_EINVAL;
    if (domain.events != nullptr) return -FI_EBUSY;
    HEDDLE_ASSERT(domain.fid.fclass == FI_CLASS_DOMAIN);
    // FI_REG_MR requests asynchronous registrations. Ours have completed when the call returns.
    if ((flags & ~kRegisterMemory) != 0) return -FI_EBADFLAGS;
    domain.events = &object<EventQueue>(other);
    domain.events_ref.set(domain.events->refs);
    return 0;
}

int open_endpoint2(fid_domain* domain, fi_info* info, fid_ep** endpoint, std::uint64_t flags,
                   void* context) {
    return flags == 0 ? open_endpoint(domain, info, endpoint, context) : -FI_ENOSYS;
}

fi_ops domain_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_domain,
    .bind = bind_domain,
    .control = unsupported,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_domain domain_ops = {
    .size = sizeof(fi_ops_domain),
    .av_open = open_address_vector,
    .cq_open = open_completion_queue,
    .endpoint = open_endpoint,
    .scalable_ep = unsupported,
    .cntr_open = open_counter,
    .poll_open = open_poll_set,
    .stx_ctx = unsupported,
    .srx_ctx = unsupported,
    .query_atomic = query_atomic,
    .query_collective = unsupported,
    .endpoint2 = open_endpoint2,
};

protocol::Options options_for(const char* device) {
    protocol::Options chosen = options().protocol;
    if (device != nullptr) chosen.device = device;
    if (options().rails > 1) {
        const DeviceInfo own = heddle::device(chosen.device);
        chosen.rails.ports = rails_beside(own, usable_ports(), options().rails - 1);
        if (chosen.rails.ports.empty())
            log(FI_LOG_WARN, "FI_HEDDLE_RAILS: there is no port beside %s", port_name(own).c_str());
    }
    chosen.complain = [](const char* line) { complain("%s", line); };
    chosen.inform = [](const char* line) { log(FI_LOG_INFO, "%s", line); };
    return chosen;
}

// Reports once that the category is not the one of the options. If the user did not choose a
// category, a line in the log is enough.
void say_if_made_as_static(const protocol::Domain& domain) {
    const std::optional<Category> wanted = domain.options().endpoints;
    if (domain.device().thread_domains || wanted == domain.category()) return;
    static std::atomic_flag said;
    if (said.test_and_set()) return;
    constexpr const char* kText =
        "%s has no thread domains: endpoints are made as static (FI_HEDDLE_ENDPOINTS)";
    if (wanted)
        complain(kText, domain.device().name.c_str());
    else
        log(FI_LOG_WARN, kText, domain.device().name.c_str());
}

void say_if_fork_takes_memory() {
    static std::atomic_flag said;
    if (verbs::survive_forks() || said.test_and_set()) return;
    complain(
        "fork() will detach registered memory from this process: the kernel does not copy it at "
        "fork() (Linux 5.12 does), and another library has registered memory before: set "
        "RDMAV_FORK_SAFE=1");
}

}  // namespace

Domain::Domain(Fabric& of, const fi_info& info)
    : fid_domain{},
      fabric(of),
      protocol(std::make_shared<protocol::Domain>(options_for(info.domain_attr->name))),
      name(info.domain_attr->name != nullptr ? info.domain_attr->name : ""),
      caps(info.caps),
      local_descriptors((info.domain_attr->mr_mode & (FI_MR_LOCAL | kMrBasic)) != 0),
      fabric_ref_(of) {
    say_if_fork_takes_memory();
    const bool itself = info.domain_attr->data_progress == FI_PROGRESS_AUTO;
    lock = protocol->lock();
    sleepers = Sleepers::of(lock);
    const bool threads = info.domain_attr->threading != FI_THREAD_DOMAIN;
    if (lock == nullptr && (threads || itself)) lock = &own_lock_;
    HEDDLE_ASSERT(lock != nullptr || !(threads || itself), "several threads need a lock");
    if (!itself) return;
    progress_event_ = make_event();
    watch(wait_fd(), progress_event_.get());
    progress_thread_ = std::thread([this] { progress_by_itself(); });
}

Domain::~Domain() {
    HEDDLE_ASSERT(endpoints.empty() && !refs.any(), "fi_close refuses a domain in use");
    if (!progress_thread_.joinable()) return;
    ending_.store(true, std::memory_order_release);
    set_event(progress_event_.get());
    progress_thread_.join();
}

void Domain::make_report() {
    reports_seen_ = reports_asked.load(std::memory_order_relaxed);
    report(*this);
}

bool Domain::arm() {
    bool quiet = true;
    for (protocol::RdmEndpoint* each : endpoints)
        quiet = each->arm() && quiet;
    return quiet;
}

bool Domain::watched(int fd) const noexcept {
    return std::any_of(endpoints.begin(), endpoints.end(),
                       [&](const protocol::RdmEndpoint* each) { return each->wait_fd() == fd; });
}

// Endpoints may share a descriptor (category mpi+threads): it is in the epoll set once.
int Domain::wait_fd() {
    if (endpoints_epoll_.open()) return endpoints_epoll_.get();
    Descriptor epoll = make_epoll();
    std::vector<int> added;
    for (protocol::RdmEndpoint* each : endpoints) {
        const int fd = each->wait_fd();
        if (std::find(added.begin(), added.end(), fd) != added.end()) continue;
        watch(epoll.get(), fd);
        added.push_back(fd);
    }
    endpoints_epoll_ = std::move(epoll);
    return endpoints_epoll_.get();
}

void Domain::enabled(protocol::RdmEndpoint& endpoint) {
    HEDDLE_ASSERT(std::find(endpoints.begin(), endpoints.end(), &endpoint) == endpoints.end());
    if (endpoints_epoll_.open()) {
        if (!watched(endpoint.wait_fd())) watch(endpoints_epoll_.get(), endpoint.wait_fd());
        // A thread that sleeps already has not armed this endpoint.
        for (Sleeper* each : sleepers->all)
            each->wake();
        if (progress_event_.open()) set_event(progress_event_.get());
    }
    endpoints.push_back(&endpoint);
    live_.add(*this, endpoint);
    update_reads_next();
}

bool Domain::waits() const noexcept {
    return std::any_of(endpoints.begin(), endpoints.end(),
                       [](const protocol::RdmEndpoint* each) { return each->waits(); });
}

void Domain::update_reads_next() noexcept {
    HEDDLE_ASSERT(std::find(endpoints.begin(), endpoints.end(), nullptr) == endpoints.end());
    reads_next = nullptr;
    if (lock != nullptr || endpoints.size() != 1) return;
    protocol::EndpointImpl& body = endpoints.front()->impl();
    if (body.channel->direct()) reads_next = &body;
}

void Domain::closing(protocol::RdmEndpoint& endpoint) noexcept {
    HEDDLE_ASSERT(std::count(endpoints.begin(), endpoints.end(), &endpoint) <= 1);
    std::erase(endpoints, &endpoint);
    live_.remove(endpoint);
    update_reads_next();
    if (endpoints_epoll_.open() && !watched(endpoint.wait_fd()))
        unwatch(endpoints_epoll_.get(), endpoint.wait_fd());
}

void Domain::progress_by_itself() {
    while (!ending_.load(std::memory_order_acquire)) {
        bool quiet = false;
        guarded("progress", [&] {
            Guard guard(*this);
            clear_event(progress_event_.get());
            progress();
            quiet = arm();
            return 0;
        });
        if (quiet)
            wait_readable(endpoints_epoll_.get(), -1);
        else
            std::this_thread::yield();
    }
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** out, void* context) noexcept {
    return guarded("fi_domain", [&] {
        if (info == nullptr || info->domain_attr == nullptr) return -FI_EINVAL;
        auto domain = std::make_unique<Domain>(static_cast<Fabric&>(*fabric), *info);
        describe(domain->fid, FI_CLASS_DOMAIN, context, domain_fid_ops);
        say_if_made_as_static(*domain->protocol);
        domain->ops = &domain_ops;
        domain->mr = &registration_table();
        domain_opened();
        *out = domain.release();
        return 0;
    });
}

}  // namespace heddle::provider
