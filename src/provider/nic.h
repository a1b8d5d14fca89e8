// SPDX-License-Identifier: BSD-2-Clause
// fi_info::nic: by which adapter and port an offer goes, so that MPI libraries can choose by
// locality. libfabric copies it and ends it through its table of functions.
#pragma once

#include <rdma/fabric.h>

#include "heddle/device.h"

namespace heddle::provider {

// Returns an object that fi_close(3) ends. Throws std::bad_alloc.
fid_nic* make_nic(const DeviceInfo& device);

}  // namespace heddle::provider
