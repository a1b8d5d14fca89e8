// SPDX-License-Identifier: BSD-2-Clause
// Decodes and runs a command that a program has written to an event channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::rdmacm {

// Returns 0 or an errno. EAGAIN of GET_EVENT: there is no event. is_rung: see Locked::pop.
int run_command(device::Fabric& fabric, std::uint32_t channel, const void* command,
                std::size_t size, bool is_rung) noexcept;
// Whether it is GET_EVENT, which may have to wait.
bool may_wait(const void* command, std::size_t size) noexcept;

}  // namespace softhca::rdmacm
