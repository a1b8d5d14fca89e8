// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/layout.h"

#include <cerrno>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/open_device.h"

namespace heddle::endpoint {
namespace {

[[noreturn]] void refuse(const std::string& asked, const std::string& hint) {
    throw VerbsError(asked, EINVAL, hint);
}

std::uint32_t share(std::uint32_t threads, std::uint32_t sharers) {
    HEDDLE_ASSERT(sharers != 0 && sharers <= threads, "layout() has refused all else");
    return (threads + sharers - 1) / sharers;
}

// An object is shared by at most as many threads as the object to which it belongs.
void require_multiple(const char* outer, std::uint32_t outer_threads, const char* inner,
                      std::uint32_t inner_threads) {
    if (outer_threads % inner_threads == 0) return;
    refuse(std::string(inner) + " shared " + std::to_string(inner_threads) + "-way with " + outer +
               " shared " + std::to_string(outer_threads) + "-way",
           std::string("a ") + inner + " belongs to one " + outer +
               ": the second number must be a multiple of the first");
}

}  // namespace

// An unpatched libmlx5 puts the thread domains 2k and 2k + 1 of a context on one UAR page. So a QP
// that must be alone on its page gets two of them and uses the first.
std::uint32_t domains_for(Placement placement) noexcept {
    switch (placement) {
        case Placement::kDriver:
            return 0;
        case Placement::kPaired:
            return 1;
        case Placement::kIndependent:
            return 2;
        case Placement::kDoubled:
            return 4;
    }
    return 0;
}

std::string hint_without_thread_domain(int error) {
    if (verbs::means_no_thread_domains(error))
        return "the device's driver has no thread domains; mpi-everywhere, static and mpi+threads "
               "need none";
    return "the context or the device has no UAR left; shared-dynamic takes half as many as "
           "dynamic, static and mpi+threads take none";
}

Layout layout(const Sharing& sharing, std::uint32_t threads, std::uint32_t qps_per_thread) {
    if (threads == 0) refuse("endpoints for 0 threads", "possible is 1 or more");
    if (qps_per_thread == 0) refuse("threads with 0 QPs", "possible is 1 or more for each");
    for (const std::uint32_t sharers :
         {sharing.context, sharing.pd, sharing.mr, sharing.cq, sharing.qp, sharing.buffer})
        if (sharers == 0 || sharers > threads)
            refuse(std::to_string(sharers) + "-way sharing among " + std::to_string(threads) +
                       " threads",
                   "possible are 1 to " + std::to_string(threads));
    require_multiple("context", sharing.context, "PD", sharing.pd);
    require_multiple("context", sharing.context, "CQ", sharing.cq);
    require_multiple("PD", sharing.pd, "MR", sharing.mr);
    require_multiple("PD", sharing.pd, "QP", sharing.qp);
    require_multiple("CQ", sharing.cq, "QP", sharing.qp);
    if (sharing.qp > 1 && sharing.placement != Placement::kDriver)
        refuse("QPs shared " + std::to_string(sharing.qp) + "-way in thread domains",
               "a QP in a thread domain has no lock: share QPs of mpi-everywhere or static");
    Layout l;
    l.threads = threads;
    l.qps_per_thread = qps_per_thread;
    l.sharing = sharing;
    l.contexts = share(threads, sharing.context);
    l.pds = share(threads, sharing.pd);
    l.mrs = share(threads, sharing.mr);
    l.buffers = share(threads, sharing.buffer);
    l.qps = share(threads, sharing.qp) * qps_per_thread;
    l.cqs = share(threads, sharing.cq);
    l.domains_per_qp = domains_for(sharing.placement);
    HEDDLE_ASSERT(l.qps >= qps_per_thread && l.qps % qps_per_thread == 0);
    HEDDLE_ASSERT(l.qp_of(threads - 1, qps_per_thread - 1) == l.qps - 1, "the last thread's QP");
    HEDDLE_ASSERT(l.cq_of(threads - 1) == l.cqs - 1, "the last thread's CQ");
    HEDDLE_ASSERT(l.contexts <= l.pds && l.pds <= l.mrs, "an outer object is shared the most");
    return l;
}

}  // namespace heddle::endpoint
