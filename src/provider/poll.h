// SPDX-License-Identifier: BSD-2-Clause
// fid_poll: several completion queues and counters looked at together. libfabric 2 calls it
// deprecated; programs written for 1 have it.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace heddle::provider {

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** set) noexcept;

}  // namespace heddle::provider
