// SPDX-License-Identifier: BSD-2-Clause
// A forked child inherits objects of its parent that it can neither use nor free: another thread of
// the parent, or the frame that a signal interrupted, may have been changing them at the fork. The
// child keeps such objects in a list. So leak checkers find them reachable.
#pragma once

namespace softhca {

// Call this in a child's fork handler, or at exit under the fabric's mutex: it is not thread-safe.
void leave_behind(const void* object) noexcept;

}  // namespace softhca
