// SPDX-License-Identifier: BSD-2-Clause
// The options of this process, read once, when libfabric loads the provider.
#pragma once

#include "provider/options.h"

namespace heddle::provider {

// Declares the options to libfabric, reads them, and reports wrong values. Called once, after
// find_host().
void read_parameters();
const Options& options() noexcept;

}  // namespace heddle::provider
