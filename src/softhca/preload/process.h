// SPDX-License-Identifier: BSD-2-Clause
// Tells which process owns the memory that a call runs in. A vfork child runs in its parent's
// memory with a descriptor table of its own. So its changes of descriptors must not change the
// parent's tables, and it must not join a fabric in its parent's name.
#pragma once

namespace softhca::preload {

// True in a vfork child, and in any child created without fork()'s handlers (clone, _Fork). Their
// calls go straight to the kernel.
bool in_borrowed_memory() noexcept;

}  // namespace softhca::preload
