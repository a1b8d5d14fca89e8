// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that end a process without its destructors: _exit, _Exit, quick_exit.
// Here, as in exit(), the last process of a fabric removes its files.
#include <cstdlib>

#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/preload/interpose.h"
#include "softhca/preload/process.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {
namespace {

// Signal handlers and vfork children call this, so it must not allocate. In borrowed memory it does
// nothing, because the state belongs to the parent.
void leave() noexcept {
    if (!in_borrowed_memory()) uverbs::leave_fabric_abruptly();
}

__attribute__((constructor)) void catch_quick_exit() { std::at_quick_exit(leave); }

}  // namespace

SOFTHCA_INTERPOSE(_exit, void, interpose_exit, (int status) noexcept);
void interpose_exit(int status) noexcept {
    leave();
    for (;;)
        ::syscall(SYS_exit_group, status);
}
SOFTHCA_ALSO(_Exit, _exit, interpose_exit);

}  // namespace softhca::preload
