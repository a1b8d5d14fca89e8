// SPDX-License-Identifier: BSD-2-Clause
// What pinning would find out about a range of this process's memory.
#pragma once

#include <cstdint>

namespace softhca::device::memory {

// Is every byte of [address, +length) mapped and readable, and writable if `write`? Thread-safe.
bool check_mapped(std::uint64_t address, std::uint64_t length, bool write) noexcept;

}  // namespace softhca::device::memory
