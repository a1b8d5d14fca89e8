// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "verbs/handles.h"

namespace heddle::verbs {

// A context of its own at each call. Empty name: the first device with an active port. Throws
// VerbsError.
Context open_device(const std::string& name);

// As early as can be: the first call must come before any library of the program registers memory.
// On kernels before 5.12 fork() would take registered pages, and queues and doorbell records with
// them, from the parent: it gets copies at its next store, and the device keeps what is the
// child's then. libibverbs keeps these pages from children. On later kernels, which it asks, this
// changes nothing. False: it is needed, and came too late. Any thread.
bool survive_forks() noexcept;

// Whether a thread domain can be had: one is made and destroyed.
bool has_thread_domains(ibv_context* context) noexcept;
// Whether `error` of ibv_alloc_td() means that the driver has none, however few are in use.
bool means_no_thread_domains(int error) noexcept;

}  // namespace heddle::verbs
