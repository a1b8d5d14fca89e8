// SPDX-License-Identifier: BSD-2-Clause
// The provider's side of `heddle top`: a process shows what its endpoints do, some times a second
// while it makes progress, and nobody has to ask for it.
#pragma once

#include <vector>

#include "protocol/rdm_endpoint.h"

namespace heddle::provider {

struct Domain;

// Of a domain, under its guard.
class LiveEndpoints {
public:
    void add(Domain& domain, const protocol::RdmEndpoint& endpoint);
    void remove(const protocol::RdmEndpoint& endpoint) noexcept;
    // From time to time; looks at the clock itself.
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
