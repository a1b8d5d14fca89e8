// SPDX-License-Identifier: BSD-2-Clause
// Checks a range of this process's memory as pinning would.
#pragma once

#include <cstdint>

namespace softhca::device::memory {

// Whether every byte of [address, +length) is mapped and readable, and also writable if `write` is
// set. Thread-safe.
bool check_mapped(std::uint64_t address, std::uint64_t length, bool write) noexcept;

}  // namespace softhca::device::memory
