// SPDX-License-Identifier: BSD-2-Clause
// fid_cq: completed operations, in the format that the program requested.
#pragma once

#include <rdma/fi_eq.h>

#include "protocol/common/completions.h"
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
    bool threshold;  // a waiting thread may name a number of entries
    // Which last members the program's fi_cq_err_entry has, by the API version of the program.
    bool errors_have_size, errors_have_source;
    // Programs whose operations complete at once never find the queue empty. Their peers need
    // progress, too, so it is made after so many reads at the latest.
    static constexpr unsigned kReadsWithoutProgress = 32;
    unsigned reads_until_progress = kReadsWithoutProgress;
    unsigned quiet_reads = 0;
    PollBackoff backoff;
    std::atomic<bool> signalled{false};
    Sleeper sleeper;
    RefCount refs;  // held by endpoints
    Ref domain_ref;
};

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** cq,
                          void* context) noexcept;
int try_wait(CompletionQueue& cq);

}  // namespace heddle::provider
