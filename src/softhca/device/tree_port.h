// SPDX-License-Identifier: BSD-2-Clause
// A port in the discovery tree (tree.h): its state, its addresses, its counters.
#pragma once

#include <string>

#include "softhca/device/port.h"
#include "softhca/device/tree_writer.h"

namespace softhca::device {

void write_port(TreeWriter& w, const Port& port);

// Writes the state and the GIDs of a port of the tree `root` anew. Programs find the old value or
// the new one. Returns 0 or an errno. The caller holds the lock of the fabric's directory.
int change_port(const std::string& root, const Port& port) noexcept;

}  // namespace softhca::device
