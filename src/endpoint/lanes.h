// SPDX-License-Identifier: BSD-2-Clause
// The categories of endpoints for users that come one by one, as the domains of an MPI process do:
// each gets a lane, and the lanes share what the category says (docs/architecture.md). Of an
// EndpointSet all are made at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "endpoint/uar_pages.h"
#include "heddle/category.h"
#include "heddle/usage.h"
#include "verbs/handles.h"

namespace heddle::endpoint {

// A context and what is made of it once. Shared by the lanes in it.
struct SharedContext {
    std::uint16_t index = 0;  // of the process
    verbs::Context context;
    verbs::ProtectionDomain pd;
    verbs::XrcDomain xrcd;  // null where the device has no XRC, or nobody wants it
    std::atomic<std::uint32_t> own_registers{0};  // OwnRegister objects made in it
};

// A uUAR for QPs that libmlx5 posts to while a lane of the same context is posted to directly.
// libmlx5 and the direct path have no lock in common, so that their QPs must not share a uUAR: two
// threads' BlueFlame writes would mix. QPs of one OwnRegister are used by one thread at a time.
class OwnRegister {
public:
    explicit OwnRegister(SharedContext& context);  // throws VerbsError
    ibv_pd* pd() const noexcept { return parent_.get(); }

private:
    verbs::ThreadDomain domain_;
    verbs::ProtectionDomain parent_;
};

// What QPs of one thread are made in.
struct Lane {
    std::shared_ptr<SharedContext> shared;
    std::vector<verbs::ThreadDomain> domains;
    verbs::ProtectionDomain parent;  // of the thread domain; null: the driver places QPs and locks
    ibv_pd* qp_pd() const noexcept { return parent ? parent.get() : shared->pd.get(); }
    // The driver may put QPs of other lanes on the same uUAR.
    bool register_shared() const noexcept { return !parent; }
};

// Thread-safe.
class Lanes {
public:
    // No category: 2xdynamic for as many lanes as there are processors, dynamic for those beyond.
    Lanes(std::string device, std::optional<Category> category, bool xrc);

    // A context for a domain: the one of the process, or (mpi-everywhere) its own. Throws
    // VerbsError.
    std::shared_ptr<SharedContext> context();
    // A lane in it. Throws VerbsError.
    std::unique_ptr<Lane> lane(const std::shared_ptr<SharedContext>& context);

    std::optional<Category> category() const noexcept { return category_; }
    // The driver places the QPs of all lanes, several on a uUAR: see OwnRegister.
    bool registers_shared() const noexcept;
    // All use one QP for each peer, and one lock.
    bool one_for_all() const noexcept { return category_ == Category::kMpiThreads; }
    // Contexts, PDs, thread domains, UARs and uUARs, measured. QPs, CQs and MRs are not made here.
    Usage usage() const;

private:
    std::shared_ptr<SharedContext> open();
    Placement placement();

    const std::string device_;
    const std::optional<Category> category_;
    const bool xrc_;
    const UarPages before_;
    mutable std::mutex mutex_;
    std::weak_ptr<SharedContext> common_;               // under mutex_
    std::vector<std::weak_ptr<SharedContext>> opened_;  // under mutex_
    std::uint16_t next_index_ = 0;                      // under mutex_
    std::uint32_t lanes_ = 0;                           // under mutex_: made so far
    std::uint32_t thread_domains_ = 0;                  // under mutex_: the same
};

}  // namespace heddle::endpoint
