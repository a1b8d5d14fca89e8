// SPDX-License-Identifier: BSD-2-Clause
// FI_HEDDLE_STATS: reports what the endpoints of the process used of the device and did. The report
// comes when the last domain is closed, and after SIGUSR2 when a domain next makes progress.
#pragma once

#include <atomic>

#include "protocol/rdm_endpoint.h"

namespace heddle::provider {

struct Domain;

// The caller holds the domain's guard, if it has one. Without the option these do nothing.
void domain_opened();
void domain_closing(Domain& domain);
void endpoint_closing(Domain& domain, const protocol::RdmEndpoint& endpoint);

// The signal handler increments it.
inline std::atomic<unsigned> reports_asked{0};
void forget_signal() noexcept;  // called before the provider is unloaded
void report(Domain& domain);    // writes the report of that domain now

}  // namespace heddle::provider
