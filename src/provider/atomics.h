// SPDX-License-Identifier: BSD-2-Clause
// The supported atomic operations, and on how many elements at once.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>

#include "protocol/common/atomic_ops.h"

namespace heddle::provider {

// Returns the most elements of an operation; 0: the operation is not supported.
std::size_t atomic_count(protocol::AtomicCall call, fi_datatype datatype, fi_op op) noexcept;
int query_atomic(fid_domain* domain, fi_datatype datatype, fi_op op, fi_atomic_attr* attributes,
                 std::uint64_t flags);

}  // namespace heddle::provider
