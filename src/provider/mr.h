// SPDX-License-Identifier: BSD-2-Clause
// fid_mr: memory that peers may access by RMA. Sends from it need no further registration.
#pragma once

#include <rdma/fi_domain.h>

namespace heddle::provider {

fi_ops_mr& registration_table() noexcept;

}  // namespace heddle::provider
