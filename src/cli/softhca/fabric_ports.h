// SPDX-License-Identifier: BSD-2-Clause
// The ports of a fabric that programs use: looking at them, and changing them. The command joins no
// fabric: it writes to the segment and the discovery tree, and wakes the programs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "softhca/device/port.h"
#include "softhca/device/port_change.h"

namespace softhca::cli {

// All throw view::FabricError if there is no such fabric, or CommandError.
std::vector<device::Port> fabric_ports(const std::string& fabric);

// Changes the port of that index by `change`. What it returns is the result.
using Change = std::function<device::PortChange(device::Segment&, unsigned index)>;
device::PortChange change_port(const std::string& fabric, unsigned index, const Change& change);

}  // namespace softhca::cli
