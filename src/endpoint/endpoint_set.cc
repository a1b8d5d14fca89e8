// SPDX-License-Identifier: BSD-2-Clause
// Creates endpoints: see heddle/endpoint.h. QPs are created in the order of their threads. The
// driver assigns uUARs in the order of creation, so that order is part of what a category means.
#include "heddle/endpoint.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "endpoint/layout.h"
#include "endpoint/measure.h"
#include "endpoint/queue_store.h"
#include "heddle/detail/assert.h"
#include "verbs/connection.h"
#include "verbs/handles.h"
#include "verbs/memlock.h"
#include "verbs/open_device.h"

namespace heddle {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t rounded(std::size_t bytes, std::size_t to) noexcept {
    HEDDLE_ASSERT(to != 0);
    return (bytes + to - 1) / to * to;
}

struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

std::string number_of(std::uint32_t index, std::uint32_t count) {
    return std::to_string(index + 1) + " of " + std::to_string(count);
}

}  // namespace

// Objects are declared in the order of creation, so they are destroyed in the reverse order.
struct EndpointSet::Parts {
    Parts(const std::string& device, const Sharing& sharing, std::uint32_t threads,
          const EndpointOptions& options, bool of_category);

    void make_contexts(const std::string& device);
    void make_buffers();
    void make_domains(bool can_do_without);
    void make_queues();
    void give_out();
    verbs::CompletionQueue make_cq(std::uint32_t index, bool locked);
    verbs::QueuePair make_qp(std::uint32_t index, ibv_cq* cq);

    endpoint::Layout layout;
    EndpointOptions options;
    Usage usage;
    std::unique_ptr<std::byte, Free> memory;
    std::size_t stride = 0;
    std::vector<verbs::Context> contexts;
    std::uint8_t port = 1;
    std::vector<verbs::ProtectionDomain> pds;
    std::vector<verbs::MemoryRegion> mrs;
    std::vector<verbs::ThreadDomain> domains;
    std::vector<verbs::ProtectionDomain> parents;  // for the QPs that have a thread domain
    std::vector<verbs::CompletionQueue> cqs;
    std::vector<ibv_cq_ex*> extended_cqs;  // of those that one thread polls, else nullptr
    std::vector<verbs::QueuePair> qps;
    std::unique_ptr<endpoint::QueueStore> queues;
    std::vector<Endpoint> endpoints;
};

EndpointSet::Parts::Parts(const std::string& device, const Sharing& sharing, std::uint32_t threads,
                          const EndpointOptions& wanted, bool of_category)
    : layout(endpoint::layout(sharing, threads, wanted.qps_per_thread)), options(wanted) {
    if (options.depth == 0) throw VerbsError("queues of depth 0", EINVAL, "possible is 1 or more");
    if (options.buffer_alignment == 0 || options.buffer_alignment > kPage)
        throw VerbsError(
            "buffers aligned to " + std::to_string(options.buffer_alignment) + " bytes", EINVAL,
            "possible are 1 to " + std::to_string(kPage));
    const endpoint::Measurement measurement;
    make_contexts(device);
    make_buffers();
    make_domains(of_category);
    make_queues();
    std::vector<ibv_qp*> all_qps;
    for (const auto& qp : qps)
        all_qps.push_back(qp.get());
    std::vector<ibv_cq*> all_cqs;
    for (const auto& cq : cqs)
        all_cqs.push_back(cq.get());
    usage.contexts = layout.contexts;
    usage.pds = static_cast<std::uint32_t>(pds.size());
    usage.mrs = static_cast<std::uint32_t>(mrs.size());
    usage.qps = static_cast<std::uint32_t>(qps.size());
    usage.cqs = static_cast<std::uint32_t>(cqs.size());
    usage.thread_domains = static_cast<std::uint32_t>(domains.size());
    measurement.finish(all_qps, all_cqs, usage);
    give_out();
}

void EndpointSet::Parts::make_contexts(const std::string& device) {
    for (std::uint32_t i = 0; i < layout.contexts; ++i) {
        auto [context, number] = verbs::open_device(device);
        contexts.push_back(std::move(context));
        port = number;
    }
    for (std::uint32_t i = 0; i < layout.pds; ++i) {
        ibv_context* const context = contexts[i * layout.sharing.pd / layout.sharing.context].get();
        verbs::ProtectionDomain pd(ibv_alloc_pd(context));
        if (!pd) throw VerbsError("protection domain " + number_of(i, layout.pds), errno);
        pds.push_back(std::move(pd));
    }
}

// Allocates all buffers at once, one in each stride. Each MR covers the buffers of its threads.
void EndpointSet::Parts::make_buffers() {
    stride = rounded(std::max<std::size_t>(options.buffer_bytes, 1), options.buffer_alignment);
    const std::size_t bytes = rounded(stride * layout.buffers, kPage);
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
    if (!memory) throw std::bad_alloc();
    std::memset(memory.get(), 0, bytes);
    for (std::uint32_t i = 0; i < layout.mrs; ++i) {
        const std::uint32_t first = i * layout.sharing.mr;
        const std::uint32_t last = std::min(first + layout.sharing.mr, layout.threads) - 1;
        std::byte* const from = memory.get() + first / layout.sharing.buffer * stride;
        std::byte* const to = memory.get() + (last / layout.sharing.buffer + 1) * stride;
        ibv_pd* const pd = pds[first / layout.sharing.pd].get();
        verbs::MemoryRegion mr(ibv_reg_mr(pd, from, static_cast<std::size_t>(to - from),
                                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
        if (!mr)
            throw VerbsError("registering " + std::to_string(to - from) + " bytes (region " +
                                 number_of(i, layout.mrs) + ")",
                             errno, verbs::memlock_hint(errno));
        HEDDLE_ASSERT(to <= memory.get() + bytes, "a region covers its own buffers only");
        mrs.push_back(std::move(mr));
    }
}

// can_do_without: if the driver has no thread domains, it places the QPs itself.
void EndpointSet::Parts::make_domains(bool can_do_without) {
    if (layout.domains_per_qp == 0) return;
    // The first of a group is used, with kDoubled also the third: alone on its page (layout.cc).
    const std::uint32_t step = layout.sharing.placement == Placement::kPaired ? 1 : 2;
    for (std::uint32_t q = 0; q < layout.qps; ++q) {
        const std::uint32_t thread = layout.thread_of_qp(q);
        ibv_context* const context = contexts[thread / layout.sharing.context].get();
        ibv_pd* const pd = pds[thread / layout.sharing.pd].get();
        for (std::uint32_t d = 0; d < layout.domains_per_qp; ++d) {
            ibv_td_init_attr nothing{};
            verbs::ThreadDomain domain(ibv_alloc_td(context, &nothing));
            if (!domain && can_do_without && verbs::means_no_thread_domains(errno)) {
                layout.leave_to_driver();
                return;
            }
            if (!domain)
                throw VerbsError(
                    "thread domain " +
                        number_of(static_cast<std::uint32_t>(domains.size()), layout.domains()),
                    errno, endpoint::hint_without_thread_domain(errno));
            domains.push_back(std::move(domain));
            if (d % step != 0) continue;
            ibv_parent_domain_init_attr attributes{};
            attributes.pd = pd;
            attributes.td = domains.back().get();
            verbs::ProtectionDomain parent(ibv_alloc_parent_domain(context, &attributes));
            if (!parent) throw VerbsError("a parent domain", errno);
            parents.push_back(std::move(parent));
        }
    }
}

verbs::CompletionQueue EndpointSet::Parts::make_cq(std::uint32_t index, bool locked) {
    const std::uint32_t used = layout.sharing.placement == Placement::kDoubled ? index / 2 : index;
    ibv_context* const context = contexts[layout.thread_of_cq(used) / layout.sharing.context].get();
    const std::uint32_t qps_on_it =
        std::max(layout.sharing.cq / layout.sharing.qp, 1u) * layout.qps_per_thread;
    const std::uint32_t entries = (options.depth + options.receive_depth) * qps_on_it;
    verbs::CompletionQueue cq;
    extended_cqs.push_back(nullptr);
    if (!locked) {
        ibv_cq_init_attr_ex attributes{};
        attributes.cqe = entries;
        attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if (ibv_cq_ex* extended = ibv_create_cq_ex(context, &attributes)) {
            cq.reset(ibv_cq_ex_to_cq(extended));
            extended_cqs.back() = extended;
        }
    }
    // Reached for CQs that threads share, and if the driver has no extended CQs.
    if (!cq) cq.reset(ibv_create_cq(context, static_cast<int>(entries), nullptr, nullptr, 0));
    if (!cq)
        throw VerbsError("completion queue " + number_of(index, layout.cqs_made()) + " of " +
                             std::to_string(entries) + " entries",
                         errno, verbs::memlock_hint(errno, "mpi+threads needs one"));
    return cq;
}

verbs::QueuePair EndpointSet::Parts::make_qp(std::uint32_t index, ibv_cq* cq) {
    HEDDLE_ASSERT(parents.empty() || index < parents.size(), "a parent domain for each QP");
    const std::uint32_t used = layout.sharing.placement == Placement::kDoubled ? index / 2 : index;
    ibv_pd* const pd = parents.empty() ? pds[layout.thread_of_qp(used) / layout.sharing.pd].get()
                                       : parents[index].get();
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {options.depth, options.receive_depth, options.max_sge,
                      options.receive_depth != 0 ? 1u : 0u, options.max_inline};
    verbs::QueuePair qp(ibv_create_qp(pd, &attributes));
    if (!qp)
        throw VerbsError("queue pair " + number_of(index, layout.qps_made()) + " of depth " +
                             std::to_string(options.depth) + " with " +
                             std::to_string(options.max_inline) + " bytes inline",
                         errno, verbs::memlock_hint(errno, "mpi+threads needs one"));
    return qp;
}

void EndpointSet::Parts::make_queues() {
    // A QP in a thread domain has no lock. Its CQ needs none either if one thread polls it.
    const bool locked = layout.sharing.placement == Placement::kDriver || layout.sharing.cq != 1 ||
                        layout.sharing.qp != 1;
    for (std::uint32_t i = 0; i < layout.cqs_made(); ++i)
        cqs.push_back(make_cq(i, locked));
    // kDoubled: every other QP, with a CQ of its own, stays idle to keep busy neighbours apart.
    const std::uint32_t step = layout.sharing.placement == Placement::kDoubled ? 2 : 1;
    for (std::uint32_t i = 0; i < layout.qps_made(); ++i) {
        const std::uint32_t cq = step * layout.cq_of(layout.thread_of_qp(i / step)) + i % step;
        qps.push_back(make_qp(i, cqs[cq].get()));
    }
}

void EndpointSet::Parts::give_out() {
    const std::uint32_t step = layout.sharing.placement == Placement::kDoubled ? 2 : 1;
    // Any thread may post to a QP that the driver locks. So the direct path locks it, too.
    const bool locked = layout.sharing.placement == Placement::kDriver || layout.sharing.qp > 1 ||
                        layout.sharing.cq > 1;
    queues = std::make_unique<endpoint::QueueStore>(options, locked);
    endpoints.resize(layout.threads);
    HEDDLE_ASSERT(qps.size() == layout.qps_made() && cqs.size() == layout.cqs_made());
    HEDDLE_ASSERT(contexts.size() == layout.contexts && pds.size() == layout.pds);
    for (std::uint32_t t = 0; t < layout.threads; ++t) {
        Endpoint& e = endpoints[t];
        e.port_ = port;
        e.context_ = contexts[t / layout.sharing.context].get();
        e.pd_ = pds[t / layout.sharing.pd].get();
        e.mr_ = mrs[t / layout.sharing.mr].get();
        e.cq_ = cqs[std::size_t{step} * layout.cq_of(t)].get();
        for (std::uint32_t k = 0; k < layout.qps_per_thread; ++k)
            e.qps_.push_back(qps[std::size_t{step} * layout.qp_of(t, k)].get());
        e.buffer_ = memory.get() + t / layout.sharing.buffer * stride;
        e.buffer_bytes_ = options.buffer_bytes;
        e.qp_shared_ = layout.sharing.qp > 1;
        e.cq_shared_ = layout.sharing.cq > 1;
        e.queues_ = queues->of(e.qps_, e.cq_, extended_cqs[std::size_t{step} * layout.cq_of(t)]);
    }
}

EndpointSet::EndpointSet(const std::string& device, Category category, std::uint32_t threads,
                         const EndpointOptions& options)
    : parts_(
          std::make_unique<Parts>(device, sharing_of(category, threads), threads, options, true)) {}

EndpointSet::EndpointSet(const std::string& device, const Sharing& sharing, std::uint32_t threads,
                         const EndpointOptions& options)
    : parts_(std::make_unique<Parts>(device, sharing, threads, options, false)) {}

EndpointSet::EndpointSet(EndpointSet&&) noexcept = default;
EndpointSet& EndpointSet::operator=(EndpointSet&&) noexcept = default;
EndpointSet::~EndpointSet() = default;

std::uint32_t EndpointSet::size() const noexcept { return parts_->layout.threads; }
Endpoint& EndpointSet::operator[](std::uint32_t thread) noexcept {
    HEDDLE_DEBUG_ASSERT(thread < parts_->endpoints.size());
    return parts_->endpoints[thread];
}
const Endpoint& EndpointSet::operator[](std::uint32_t thread) const noexcept {
    HEDDLE_DEBUG_ASSERT(thread < parts_->endpoints.size());
    return parts_->endpoints[thread];
}
const Usage& EndpointSet::usage() const noexcept { return parts_->usage; }

const void* Endpoint::uuar(std::uint32_t k) const noexcept { return endpoint::uuar_of(qp(k)); }
QpAddress Endpoint::address(std::uint32_t k) const {
    return verbs::address_of(qp(k), verbs::local_port(context_, port_));
}
void Endpoint::connect(const QpAddress& peer, std::uint32_t k) const {
    verbs::connect(qp(k), peer, verbs::local_port(context_, port_));
}

}  // namespace heddle
