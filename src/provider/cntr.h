// SPDX-License-Identifier: BSD-2-Clause
// fid_cntr: counts completed and failed operations.
#pragma once

#include <rdma/fi_eq.h>

#include "protocol/common/completions.h"
#include "provider/domain.h"
#include "provider/object.h"
#include "provider/sleeper.h"

namespace heddle::provider {

struct CounterObject : fid_cntr {
    using Fid = fid_cntr;
    CounterObject(Domain& domain, fi_wait_obj kind);

    std::uint64_t done() const noexcept { return count.done.load(std::memory_order_acquire); }
    std::uint64_t failed() const noexcept { return count.failed.load(std::memory_order_acquire); }

    Domain& domain;
    protocol::Counter count;
    // The values when a thread last went to sleep. Any change wakes it.
    std::uint64_t seen_done = 0, seen_failed = 0;
    Sleeper sleeper;
    RefCount refs;
    Ref domain_ref;
};

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter,
                 void* context) noexcept;
int try_wait(CounterObject& counter);

}  // namespace heddle::provider
