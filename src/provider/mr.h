// SPDX-License-Identifier: BSD-2-Clause
// fid_mr: memory that peers may reach, and that needs no other registration to be sent from.
#pragma once

#include <rdma/fi_domain.h>

namespace heddle::provider {

fi_ops_mr& registration_table() noexcept;

}  // namespace heddle::provider
