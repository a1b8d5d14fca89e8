// SPDX-License-Identifier: BSD-2-Clause
// fid_poll: a set of completion queues and counters that a program polls together. It is deprecated
// in libfabric 2; programs for libfabric 1 use it.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace heddle::provider {

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** set) noexcept;

}  // namespace heddle::provider
