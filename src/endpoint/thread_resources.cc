// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/thread_resources.h"

#include <fcntl.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "endpoint/layout.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/open_device.h"

namespace heddle::endpoint {

OwnRegister::OwnRegister(SharedContext& context) {
    ibv_td_init_attr nothing{};
    domain_.reset(ibv_alloc_td(context.context.get(), &nothing));
    if (!domain_)
        throw VerbsError("a thread domain for queue pairs beside the direct path", errno,
                         "FI_HEDDLE_POST=verbs needs none");
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = context.pd.get();
    attributes.td = domain_.get();
    parent_.reset(ibv_alloc_parent_domain(context.context.get(), &attributes));
    if (!parent_) throw VerbsError("a parent domain", errno);
    ++context.own_registers;
}

ThreadResourceFactory::ThreadResourceFactory(std::string device, std::optional<Category> category,
                                             bool xrc)
    : device_(std::move(device)), category_(category), xrc_(xrc), before_(mapped_uar_pages()) {}

std::shared_ptr<SharedContext> ThreadResourceFactory::context() {
    const std::lock_guard guard(mutex_);
    if (category_ == Category::kMpiEverywhere) return open();
    std::shared_ptr<SharedContext> common = common_.lock();
    if (!common) common_ = common = open();
    return common;
}

std::shared_ptr<SharedContext> ThreadResourceFactory::open() {
    auto shared = std::make_shared<SharedContext>();
    shared->index = next_index_++;
    verbs::OpenDevice opened = verbs::open_device(device_);
    shared->context = std::move(opened.context);
    shared->port = verbs::local_port(shared->context.get(), opened.port);
    shared->pd.reset(ibv_alloc_pd(shared->context.get()));
    if (!shared->pd) throw VerbsError("a protection domain", errno);
    if (xrc_) {
        ibv_xrcd_init_attr attributes{};
        attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attributes.fd = -1;  // no other process shares it
        attributes.oflags = O_CREAT;
        shared->xrcd.reset(ibv_open_xrcd(shared->context.get(), &attributes));
        if (!shared->xrcd)
            throw VerbsError("an XRC domain", errno, "FI_HEDDLE_TRANSPORT=rc uses RC");
    }
    opened_.push_back(shared);
    return shared;
}

Placement ThreadResourceFactory::placement() {
    if (category_) return sharing_of(*category_, 1).placement;
    return allocated_ < std::thread::hardware_concurrency() ? Placement::kDoubled
                                                            : Placement::kIndependent;
}

bool ThreadResourceFactory::registers_shared() const noexcept {
    return category_ && domains_for(sharing_of(*category_, 1).placement) == 0;
}

std::unique_ptr<ThreadResources> ThreadResourceFactory::allocate(
    const std::shared_ptr<SharedContext>& context) {
    HEDDLE_ASSERT(context != nullptr && context->context && context->pd);
    const std::lock_guard guard(mutex_);
    auto resources = std::make_unique<ThreadResources>();
    resources->shared = context;
    for (std::uint32_t d = 0; d < domains_for(placement()); ++d) {
        ibv_td_init_attr nothing{};
        verbs::ThreadDomain domain(ibv_alloc_td(context->context.get(), &nothing));
        if (!domain)
            throw VerbsError("a thread domain for endpoint " + std::to_string(allocated_ + 1),
                             errno, hint_without_thread_domain(errno) + " (FI_HEDDLE_ENDPOINTS)");
        resources->domains.push_back(std::move(domain));
        ++thread_domains_;
    }
    if (!resources->domains.empty()) {
        ibv_parent_domain_init_attr attributes{};
        attributes.pd = context->pd.get();
        attributes.td = resources->domains.front().get();
        resources->parent.reset(ibv_alloc_parent_domain(context->context.get(), &attributes));
        if (!resources->parent) throw VerbsError("a parent domain", errno);
    }
    HEDDLE_ASSERT(resources->domains.empty() == resources->register_shared());
    ++allocated_;
    return resources;
}

Usage ThreadResourceFactory::usage() const {
    const std::lock_guard guard(mutex_);
    Usage usage;
    usage.thread_domains = thread_domains_;
    for (const auto& opened : opened_)
        if (const auto context = opened.lock()) {
            ++usage.contexts;
            ++usage.pds;
            usage.thread_domains += context->own_registers;
        }
    std::uint32_t pages = 0;
    for (const auto& [address, offset] : mapped_uar_pages())
        if (!before_.contains(address)) ++pages;
    HEDDLE_ASSERT(usage.contexts <= next_index_);
    usage.uars = pages;
    usage.uuars = 2 * pages;
    return usage;
}

}  // namespace heddle::endpoint
