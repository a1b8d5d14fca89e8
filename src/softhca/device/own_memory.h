// SPDX-License-Identifier: BSD-2-Clause
// Where queues and regions of this process lie in its address space, as the process itself knows
// it. Their records are in the fabric's segment, and any member of the fabric can write there.
// Memory that is shared is bounded by the arena. Memory that is not shared is reached by its
// address, so the address is looked up here first.
//
// All functions are thread-safe. The look-ups allocate nothing.
#pragma once

#include <cstdint>

namespace softhca::device::own_memory {

// Called when a queue's buffer or record has been pinned, and when it is released: a count for each
// range. False: there is no memory for the entry.
bool add_queue(std::uint64_t address, std::uint64_t length) noexcept;
void remove_queue(std::uint64_t address, std::uint64_t length) noexcept;
// Is it wholly within one buffer or record?
bool is_queue(std::uint64_t address, std::uint64_t length) noexcept;

// The same for the region of that index in the segment's table; a second call replaces the range.
bool set_region(std::uint32_t index, std::uint64_t address, std::uint64_t length) noexcept;
void remove_region(std::uint32_t index) noexcept;
bool is_region(std::uint32_t index, std::uint64_t address, std::uint64_t length) noexcept;

void forget_after_fork() noexcept;

}  // namespace softhca::device::own_memory
