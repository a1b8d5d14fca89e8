// SPDX-License-Identifier: BSD-2-Clause
// The provider's side of `heddle top`: a process publishes what its endpoints do, five times a
// second while it makes progress, whether a reader exists or not.
#pragma once

#include <vector>

#include "protocol/rdm_endpoint.h"

namespace heddle::provider {

struct Domain;

// The published endpoints of a domain. The caller holds the domain's guard.
class LiveEndpoints {
public:
    void add(Domain& domain, const protocol::RdmEndpoint& endpoint);
    void remove(const protocol::RdmEndpoint& endpoint) noexcept;
    // Publishes new values if it is time: the function reads the clock itself.
    void look(Domain& domain) noexcept;

private:
    struct Shown {
        const protocol::RdmEndpoint* endpoint;
        std::uint32_t slot;
    };
    std::vector<Shown> shown_;
    std::uint64_t next_ns_ = 0;
};

}  // namespace heddle::provider
