// SPDX-License-Identifier: BSD-2-Clause
// Whose memory this is. A vfork child runs on its parent's memory with a descriptor table of its
// own: what it does to descriptors must not reach the parent's tables, and it must not join a
// fabric in its parent's name.
#pragma once

namespace softhca::preload {

// True in a vfork child, and in any child made without fork()'s handlers (clone, _Fork): those are
// served by the kernel alone.
bool in_borrowed_memory() noexcept;

}  // namespace softhca::preload
