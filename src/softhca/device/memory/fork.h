// SPDX-License-Identifier: BSD-2-Clause
// The three handlers of fork(2) in a process with shared segments. The layer above registers them
// by one call of pthread_atfork(3). fork.cc describes how the child gets its copies.
//
// The prepare handler runs before the prepare handlers that were registered earlier. The child may
// miss what those handlers, and the calling thread, still write to registered pages. So no code of
// the application should run in between. The three handlers hold all locks of this folder, and
// never use the heap.
#pragma once

namespace softhca::device::memory {

void atfork_prepare() noexcept;
void atfork_parent() noexcept;
void atfork_child() noexcept;

}  // namespace softhca::device::memory
