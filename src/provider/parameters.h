// SPDX-License-Identifier: BSD-2-Clause
// The options of this process, read once, when libfabric loads the provider.
#pragma once

#include "provider/options.h"

namespace heddle::provider {

// Declares them to libfabric, reads them, complains about what is wrong. Once, after find_host().
void read_parameters();
const Options& options() noexcept;

}  // namespace heddle::provider
