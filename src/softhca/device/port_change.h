// SPDX-License-Identifier: BSD-2-Clause
// Changing a port while programs use it: its link, and the addresses of an Ethernet port. For
// `softhca port`, which is no member of the fabric. The caller holds the lock of the fabric's
// directory, so one change comes after the other. Each change shows in the segment at once. After
// the discovery tree shows it as well, the caller announces it, and programs get their events.
#pragma once

#include "softhca/device/port.h"
#include "softhca/device/segment.h"

namespace softhca::device {

enum class PortChange {
    kDone,
    kNothingToDo,  // the port is so already
    kNoRoom,       // all entries of the GID table are in use
    kTaken,        // another port has the address
    kInfiniBand,   // the GIDs of an InfiniBand port do not change
};

PortChange set_link(Segment& segment, unsigned index, bool is_up) noexcept;
PortChange add_address(Segment& segment, unsigned index, const IpAddress& address) noexcept;
PortChange remove_address(Segment& segment, unsigned index, const IpAddress& address) noexcept;

// Wakes all processes of the fabric, which look for what has changed.
void announce_port_changes(Segment& segment) noexcept;

}  // namespace softhca::device
