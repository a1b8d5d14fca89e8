// SPDX-License-Identifier: BSD-2-Clause
// What the domains of a process share: the verbs objects of its category, the connector, numbers of
// endpoints. There is one for each device, made by the first domain and gone with the last.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "endpoint/thread_resources.h"
#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "memory/registration_cache.h"
#include "protocol/reuse/reuse.h"
#include "protocol/reuse/reuse_costs.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/domain.h"
#include "protocol/transport/kept_regions.h"
#include "protocol/transport/registered_regions.h"
#include "protocol/wireup/connector.h"

namespace heddle::protocol {

class Process {
public:
    static std::shared_ptr<Process> get(const Options& options);
    explicit Process(const Options& options);

    const Options options;
    const DeviceInfo device;
    endpoint::ThreadResourceFactory thread_resources;
    std::recursive_mutex everything;  // of mpi+threads

    // Threads of its own start with the first endpoint, after that has registered its buffers: the
    // software HCA can share pages most easily while the process has one thread.
    Connector& connector(const std::shared_ptr<endpoint::SharedContext>& context);
    std::shared_ptr<Channel> channel(const std::shared_ptr<endpoint::SharedContext>& context);
    // What its domains register memory with.
    std::shared_ptr<memory::RegistrationCache> cache(const endpoint::SharedContext& context);
    // Measured at the first call, or known from an earlier process; never throws: nothing is known.
    const ReuseCosts& reuse_costs(endpoint::SharedContext& context) noexcept;
    std::uint16_t new_endpoint();
    void release_endpoint(std::uint16_t number);

    // Tuple queues, of all endpoints. False: there are as many as there may be.
    bool take_tuple() noexcept {
        if (tuples_.fetch_add(1, std::memory_order_relaxed) < options.tuples.process_queues)
            return true;
        release_tuple();
        return false;
    }
    void release_tuple() noexcept {
        [[maybe_unused]] const std::uint32_t before =
            tuples_.fetch_sub(1, std::memory_order_relaxed);
        HEDDLE_ASSERT(before != 0, "a tuple queue was given back twice");
    }

    // For registrations of memory that is never polled: IBV_ACCESS_RELAXED_ORDERING, or nothing.
    int optional_access() const noexcept {
        return options.registration.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0;
    }
    // For registrations of the program's memory: IBV_ACCESS_ON_DEMAND, or nothing.
    int paging_access() const noexcept {
        return options.registration.on_demand_paging && device.on_demand_paging
                   ? IBV_ACCESS_ON_DEMAND
                   : 0;
    }
    void count_registration(int change) noexcept {
        [[maybe_unused]] const int now = registrations_ += change;
        HEDDLE_ASSERT(now >= 0, "a registration ended twice");
    }
    // Whether endpoints post by the direct path. Throws VerbsError if it was asked for and the
    // device, or the environment, has none.
    bool direct() const;
    Usage usage() const;
    memory::CacheCounts cache_counts() const;

private:
    // libmlx5 posts to some QPs of a context, besides QPs that the direct path posts to: the former
    // need a uUAR that the driver gives to no thread's QPs.
    bool needs_own_register() const { return direct() && thread_resources.registers_shared(); }

    mutable std::mutex mutex_;
    std::shared_ptr<endpoint::SharedContext> connector_context_;  // before its users
    std::optional<endpoint::OwnRegister> connector_register_;
    std::unique_ptr<Connector> connector_;
    std::weak_ptr<Channel> common_;  // of mpi+threads
    std::vector<std::weak_ptr<Channel>> channels_;
    std::uint32_t last_channel_ = 0;
    const bool direct_pays_;  // as far as is known; of PostPath::kAuto
    const std::shared_ptr<memory::AddressMonitor> monitor_;
    std::map<std::uint16_t, std::weak_ptr<memory::RegistrationCache>> caches_;  // by context
    std::optional<bool> held_to_memlock_;                                       // once known
    std::bitset<65536> numbers_;   // under mutex_: endpoints that are there
    std::size_t next_number_ = 0;  // under mutex_
    std::atomic<int> registrations_{0};
    std::atomic<std::uint32_t> tuples_{0};
    std::once_flag costs_once_;
    ReuseCosts costs_;  // by whoever asks first
};

class Domain::Body {
public:
    explicit Body(const Options& options)
        : process(Process::get(options)),
          context(process->thread_resources.context()),
          cache(process->cache(*context)),
          kept_regions(*cache, process->options.mr_cache_bytes) {}
    ~Body() { HEDDLE_ASSERT(reuses.empty(), "endpoints end before their domain"); }
    Body(const Body&) = delete;
    Body& operator=(const Body&) = delete;

    const std::shared_ptr<Process> process;
    const std::shared_ptr<endpoint::SharedContext> context;
    const std::shared_ptr<memory::RegistrationCache> cache;

    RegisteredRegions regions;
    KeptRegions kept_regions;

    // The tables of its endpoints. Used by the thread, or under the lock, that its endpoints are
    // used by.
    std::vector<Reuse*> reuses;
    // The process may lock no more: buffers in frequent use are copied again, for the moment.
    void give_up_held() noexcept {
        cache->give_up_held();
        kept_regions.end_all();
        for (Reuse* const reuse : reuses)
            reuse->sweep();
    }
};

}  // namespace heddle::protocol
