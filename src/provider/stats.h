// SPDX-License-Identifier: BSD-2-Clause
// FI_HEDDLE_STATS: what the endpoints of the process took of the device and did. At the end of its
// last domain, and on SIGUSR2, when a domain next makes progress.
#pragma once

#include <atomic>

#include "protocol/rdm_endpoint.h"

namespace heddle::provider {

struct Domain;

// All under the domain's guard, where there is one; nothing where the option is off.
void domain_opened();
void domain_closing(Domain& domain);
void endpoint_closing(Domain& domain, const protocol::RdmEndpoint& endpoint);

// Changes with each signal.
inline std::atomic<unsigned> reports_asked{0};
void forget_signal() noexcept;  // before the provider is unloaded
void report(Domain& domain);    // of that domain, now

}  // namespace heddle::provider
