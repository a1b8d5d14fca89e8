// SPDX-License-Identifier: BSD-2-Clause
// What a forked child has of its parent's state and can neither use nor free: a thread that the
// child does not have, or the frame that a signal interrupted, may have been at work on it. Here it
// stays, where leak checkers see that somebody knows of it.
#pragma once

namespace softhca {

void leave_behind(const void* object) noexcept;  // by a child's fork handler only

}  // namespace softhca
