// SPDX-License-Identifier: BSD-2-Clause
// Computes how many of each object n threads need under a sharing, and which ones a thread uses.
// With x-way sharing thread t uses object t / x. No object is created here.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/category.h"

namespace heddle::endpoint {

struct Layout {
    std::uint32_t threads = 0, qps_per_thread = 1;
    Sharing sharing;
    std::uint32_t contexts = 0, pds = 0, mrs = 0, buffers = 0;
    std::uint32_t qps = 0, cqs = 0;    // used; with kDoubled as many again are created
    std::uint32_t domains_per_qp = 0;  // thread domains allocated for each used QP
    std::uint32_t qps_made() const noexcept {
        return sharing.placement == Placement::kDoubled ? 2 * qps : qps;
    }
    std::uint32_t cqs_made() const noexcept {
        return sharing.placement == Placement::kDoubled ? 2 * cqs : cqs;
    }
    // Turns a category into static, for a device without thread domains. All other sharing stays.
    void leave_to_driver() noexcept {
        sharing.placement = Placement::kDriver;
        domains_per_qp = 0;
    }
    std::uint32_t domains() const noexcept { return domains_per_qp * qps; }
    // Returns the first of the threads that share QP `qp` or CQ `cq`, indices of used ones.
    std::uint32_t thread_of_qp(std::uint32_t qp) const noexcept {
        return qp / qps_per_thread * sharing.qp;
    }
    std::uint32_t thread_of_cq(std::uint32_t cq) const noexcept { return cq * sharing.cq; }
    // Returns the k-th QP of a thread, or its CQ: indices of used ones.
    std::uint32_t qp_of(std::uint32_t thread, std::uint32_t k) const noexcept {
        return thread / sharing.qp * qps_per_thread + k;
    }
    std::uint32_t cq_of(std::uint32_t thread) const noexcept { return thread / sharing.cq; }
};

// Throws VerbsError (EINVAL), which names the two numbers that do not fit.
Layout layout(const Sharing& sharing, std::uint32_t threads, std::uint32_t qps_per_thread);

// Returns how many thread domains a used QP needs.
std::uint32_t domains_for(Placement placement) noexcept;

// Returns a hint for VerbsError after ibv_alloc_td() has failed with `error`, an errno.
std::string hint_without_thread_domain(int error);

}  // namespace heddle::endpoint
