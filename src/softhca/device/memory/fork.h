// SPDX-License-Identifier: BSD-2-Clause
// fork(2) in a process with shared segments: the three functions that one pthread_atfork(3)
// registration, made by the layer above, calls. See fork.cc for how the child gets its copies.
//
// Prepare runs before the prepare handlers that were registered earlier. What those, and the
// calling thread, still write to registered pages the child may miss; so nothing of the application
// should come between. The three hold all locks of this folder, and never use the heap.
#pragma once

namespace softhca::device::memory {

void atfork_prepare() noexcept;
void atfork_parent() noexcept;
void atfork_child() noexcept;

}  // namespace softhca::device::memory
