// SPDX-License-Identifier: BSD-2-Clause
// fid_cq: finished operations, in the order and format that the program asked for.
#pragma once

#include <rdma/fi_eq.h>

#include "protocol/completions.h"
#include "provider/domain.h"
#include "provider/object.h"
#include "provider/poll_backoff.h"
#include "provider/sleeper.h"

namespace heddle::provider {

struct CompletionQueue : fid_cq {
    using Fid = fid_cq;
    CompletionQueue(Domain& domain, const fi_cq_attr& attributes);

    Domain& domain;
    protocol::Completions ring;
    fi_cq_format format;
    bool threshold;  // a waiter may name a number of entries
    // What the program's fi_cq_err_entry ends with, by the version it was compiled for.
    bool errors_have_size, errors_have_source;
    // Programs whose operations complete at once never find the queue empty, but have peers, too.
    static constexpr unsigned kReadsWithoutProgress = 32;
    unsigned reads_until_progress = kReadsWithoutProgress;
    PollBackoff backoff;
    std::atomic<bool> signalled{false};
    Sleeper sleeper;
    RefCount refs;  // by endpoints
    Ref domain_ref;
};

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** cq,
                          void* context) noexcept;
int try_wait(CompletionQueue& cq);

}  // namespace heddle::provider
