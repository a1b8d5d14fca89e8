// SPDX-License-Identifier: BSD-2-Clause
// Asynchronous events of ports: IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE.
// Whoever changes a port counts the change in the segment (device/port_change.h) and rings all
// processes. The progress thread of each gives the events to its own contexts.
#pragma once

#include "softhca/device/fabric.h"

namespace softhca::engine {

// A new context knows of all changes so far.
void note_ports(const device::Segment& segment, device::Context& context) noexcept;
// Call it when the context is live: changes meanwhile are its first events.
void watch_ports(device::Fabric& fabric) noexcept;

// Gives the events since the last call to this process's contexts. For the progress thread.
void report_port_changes(device::Fabric& fabric) noexcept;

}  // namespace softhca::engine
