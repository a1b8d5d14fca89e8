// SPDX-License-Identifier: BSD-2-Clause
// Removing fabrics, and what dead processes have left in them.
#pragma once

#include <string>

namespace softhca::cli {

// Frees the objects of dead processes by joining the fabric for a moment. Throws CommandError.
void reclaim_dead(const std::string& name);

// Removes segment and tree, unless live processes use the fabric and `force` is not given: then
// false, and nothing was done. Throws CommandError if something cannot be removed.
bool remove_fabric(const std::string& name, bool force);

// Removes all fabrics of this user that no live process uses: those of killed jobs, as each process
// that ends by itself takes them away if it is the last. Never waits; what cannot be removed stays.
void remove_dead_fabrics();

}  // namespace softhca::cli
