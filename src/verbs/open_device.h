// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "verbs/handles.h"

namespace heddle::verbs {

// A context of its own at each call. Empty name: the first device with an active port. Throws
// VerbsError.
Context open_device(const std::string& name);

// Whether a thread domain can be had: one is made and destroyed.
bool has_thread_domains(ibv_context* context) noexcept;
// Whether `error` of ibv_alloc_td() means that the driver has none, however few are in use.
bool means_no_thread_domains(int error) noexcept;

}  // namespace heddle::verbs
