// SPDX-License-Identifier: BSD-2-Clause
// The progress thread of a process. It runs the send queues that wait (pending_list.h), polls QPs
// that are posted to past the ops table (direct_polling.h), looks after peers that died
// (peer_watch.h), and sleeps when there is nothing to do.
#pragma once

#include "softhca/device/fabric.h"

namespace softhca::engine {

void start_progress(device::Fabric& fabric) noexcept;  // idempotent
void stop_progress() noexcept;                         // at exit; waits for the thread
void forget_progress_after_fork() noexcept;

// From then on the thread calls `watch` about ten times a second, outside an epoch.
void set_watch(device::Fabric& fabric, void (*watch)(device::Fabric&) noexcept) noexcept;

}  // namespace softhca::engine
