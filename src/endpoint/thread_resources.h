// SPDX-License-Identifier: BSD-2-Clause
// The endpoint categories for callers that arrive one by one, as the endpoints of an MPI process
// do. Each gets the verbs objects in which its QPs are created, and these objects share what the
// category says (docs/architecture/endpoint.md). An EndpointSet creates all of its endpoints at
// once instead.
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
#include "verbs/local_port.h"

namespace heddle::endpoint {

// A context and the objects that exist once in it. The threads whose QPs are in it share them.
struct SharedContext {
    std::uint16_t index = 0;  // within the process
    verbs::Context context;
    verbs::LocalPort port;  // of all QPs in it
    verbs::ProtectionDomain pd;
    verbs::XrcDomain xrcd;  // null: the device has no XRC, or the caller does not want it
    std::atomic<std::uint32_t> own_registers{0};  // OwnRegister objects created in it
};

// A uUAR for QPs that libmlx5 posts to while the direct path posts to other QPs of the same
// context. libmlx5 and the direct path have no lock in common. If their QPs shared a uUAR, the
// BlueFlame writes of two threads could mix. The QPs of one OwnRegister are used by one thread at a
// time.
class OwnRegister {
public:
    explicit OwnRegister(SharedContext& context);  // throws VerbsError
    ibv_pd* pd() const noexcept { return parent_.get(); }

private:
    verbs::ThreadDomain domain_;
    verbs::ProtectionDomain parent_;
};

// The objects in which the QPs of one thread are created.
struct ThreadResources {
    std::shared_ptr<SharedContext> shared;
    std::vector<verbs::ThreadDomain> domains;
    // The parent domain of the thread domain. null: the driver chooses the uUAR and locks the QP.
    verbs::ProtectionDomain parent;
    ibv_pd* qp_pd() const noexcept { return parent ? parent.get() : shared->pd.get(); }
    // Whether the driver may put QPs of other threads on the same uUAR.
    bool register_shared() const noexcept { return !parent; }
};

// Opens contexts and allocates thread domains as a category says. Thread-safe.
class ThreadResourceFactory {
public:
    // category: nullopt is 2xdynamic for as many threads as there are processors, dynamic beyond.
    ThreadResourceFactory(std::string device, std::optional<Category> category, bool xrc);

    // The context for a domain: one for the whole process, or with mpi-everywhere a new one. Throws
    // VerbsError.
    std::shared_ptr<SharedContext> context();
    // New resources in `context`, which this factory returned. Throws VerbsError.
    std::unique_ptr<ThreadResources> allocate(const std::shared_ptr<SharedContext>& context);

    std::optional<Category> category() const noexcept { return category_; }
    // Whether the driver places the QPs of all threads, several on a uUAR: see OwnRegister.
    bool registers_shared() const noexcept;
    // Whether all threads share one QP for each peer, and one lock.
    bool one_for_all() const noexcept { return category_ == Category::kMpiThreads; }
    // Contexts, PDs, thread domains, UARs and uUARs, as measured. The counts of QPs, CQs and MRs
    // stay zero, since other code creates them.
    Usage usage() const;

private:
    std::shared_ptr<SharedContext> open();
    Placement placement();

    const std::string device_;
    const std::optional<Category> category_;
    const bool xrc_;
    const UarPages before_;  // mapped before this factory opened a context
    // The mutex guards everything below.
    mutable std::mutex mutex_;
    std::weak_ptr<SharedContext> common_;
    std::vector<std::weak_ptr<SharedContext>> opened_;
    std::uint16_t next_index_ = 0;
    std::uint32_t allocated_ = 0;       // by allocate(), ever
    std::uint32_t thread_domains_ = 0;  // the same
};

}  // namespace heddle::endpoint
