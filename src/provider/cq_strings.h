// SPDX-License-Identifier: BSD-2-Clause
// The text of a device's error number, for fi_cq_strerror(3).
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>

namespace heddle::provider {

const char* error_text(fid_cq* cq, int device_error, const void* error_data, char* buffer,
                       std::size_t bytes);

}  // namespace heddle::provider
