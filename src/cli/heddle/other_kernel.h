// SPDX-License-Identifier: BSD-2-Clause
// The same command under the UAR kernel that is not running. The software HCA can do that, because
// an environment variable chooses its kernel when a process starts.
#pragma once

#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::cli {

struct OtherKernel {
    std::string output;   // what the command printed; or empty, and
    std::string why_not;  // in words
    int status = 0;
};

// On hardware nothing is run: its kernel is what it is, and numbers from formulas are no
// measurement.
OtherKernel run_under_other_kernel(const DeviceInfo& device,
                                   const std::vector<std::string>& arguments);

}  // namespace heddle::cli
