// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>

#include "verbs/handles.h"

namespace heddle::verbs {

struct OpenDevice {
    Context context;
    std::uint8_t port;
};

// Opens the device that heddle::device() finds by that name, for that port; each call returns a new
// context. Throws VerbsError.
OpenDevice open_device(const std::string& name);

// Protects registered memory from fork(). Returns false if protection is needed and the call came
// too late: the first call must precede any registration of memory, by any library of the program.
// So call it as early as possible. Any thread.
//
// On kernels before 5.12 the parent gets copies of registered pages, queues and doorbell records at
// its next store after fork(), while the device keeps using the pages that the child has then.
// libibverbs keeps these pages from children. On later kernels, which libibverbs detects, the call
// has no effect.
bool survive_forks() noexcept;

// Returns whether a thread domain can be allocated. It allocates one and frees it.
bool has_thread_domains(ibv_context* context) noexcept;
// Returns whether this errno of ibv_alloc_td() means that the driver has no thread domains at all.
bool means_no_thread_domains(int error) noexcept;

}  // namespace heddle::verbs
