// SPDX-License-Identifier: BSD-2-Clause
// The text of prov_errno in a CQ's error entries: the device's status of the work request
// (ibv_wc_status), or 0.
#include "provider/cq_strings.h"

#include <infiniband/verbs.h>

#include <cstdio>

namespace heddle::provider {

const char* error_text(fid_cq*, int device_error, const void*, char* buffer, std::size_t bytes) {
    const char* text = device_error == 0
                           ? "the device reported no error"
                           : ibv_wc_status_str(static_cast<ibv_wc_status>(device_error));
    if (buffer != nullptr && bytes > 0) std::snprintf(buffer, bytes, "%s", text);
    return text;
}

}  // namespace heddle::provider
