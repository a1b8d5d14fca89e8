// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "verbs/handles.h"

namespace heddle::verbs {

// A context of its own at each call. Empty name: the first device with an active port. Throws
// VerbsError.
Context open_device(const std::string& name);

}  // namespace heddle::verbs
