// SPDX-License-Identifier: BSD-2-Clause
// The same command under the UAR kernel that is not running: possible on the software HCA, which is
// told which kernel to be by an environment variable at the start of a process.
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
