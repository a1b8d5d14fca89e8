// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/layout.h"

#include <cerrno>
#include <string>

#include "heddle/error.h"
#include "verbs/open_device.h"

namespace heddle::endpoint {
namespace {

[[noreturn]] void refuse(const std::string& asked, const std::string& hint) {
    throw VerbsError(asked, EINVAL, hint);
}

std::uint32_t share(std::uint32_t threads, std::uint32_t ways) {
    return (threads + ways - 1) / ways;
}

// What belongs to something else cannot be shared by more threads than that is.
void must_hold(const char* outer, std::uint32_t outer_ways, const char* inner,
               std::uint32_t inner_ways) {
    if (outer_ways % inner_ways == 0) return;
    refuse(std::string(inner) + " shared " + std::to_string(inner_ways) + "-way with " + outer +
               " shared " + std::to_string(outer_ways) + "-way",
           std::string("a ") + inner + " belongs to one " + outer +
               ": the second number must be a multiple of the first");
}

}  // namespace

// Maximally independent on an unpatched libmlx5: it puts thread domains 2k and 2k + 1 of a context
// on one page, so two are allocated and the first is used.
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
    if (threads == 0) refuse("endpoints for no threads", "at least one");
    if (qps_per_thread == 0) refuse("threads with no QP", "at least one each");
    for (const std::uint32_t ways :
         {sharing.context, sharing.pd, sharing.mr, sharing.cq, sharing.qp, sharing.buffer})
        if (ways == 0 || ways > threads)
            refuse(
                std::to_string(ways) + "-way sharing among " + std::to_string(threads) + " threads",
                "possible are 1 to " + std::to_string(threads));
    must_hold("context", sharing.context, "PD", sharing.pd);
    must_hold("context", sharing.context, "CQ", sharing.cq);
    must_hold("PD", sharing.pd, "MR", sharing.mr);
    must_hold("PD", sharing.pd, "QP", sharing.qp);
    must_hold("CQ", sharing.cq, "QP", sharing.qp);
    if (sharing.qp > 1 && sharing.placement != Placement::kDriver)
        refuse("QPs shared " + std::to_string(sharing.qp) + "-way in thread domains",
               "the driver keeps no lock for these: share QPs of mpi-everywhere or static");
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
    return l;
}

}  // namespace heddle::endpoint
