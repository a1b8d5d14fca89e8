// SPDX-License-Identifier: BSD-2-Clause
// Atomic operations by software, at the target: values in memory, operands from a message.
// Numbers of datatypes and operations are libfabric's (fi_domain.h): they are what travels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::protocol {

// Bytes of one element; 0: no such datatype here.
std::size_t atomic_size(std::uint8_t datatype) noexcept;

// Which calls an operation may come by.
enum class AtomicCall : std::uint8_t { kWrite, kFetch, kCompare };
bool atomic_valid(AtomicCall call, std::uint8_t datatype, std::uint8_t op) noexcept;

// Values of each element that come with an operation: none, the operand, or that and what to
// compare with.
unsigned atomic_operands(std::uint8_t op) noexcept;

// For each of `count` elements: what is at `target` goes to `result` (unless null), then
// target = op(target, operand[, compare]). Nothing need be aligned. Elements of 1, 2, 4 and 8 bytes
// change by one compare-and-swap of the processor, so that endpoints of other threads may do the
// same; all others (complex, long double, 128 bits, and a target that is not aligned to the size of
// its element) under a lock of the process. What is left as it is, is not written. `operand` may be
// null for FI_ATOMIC_READ, `compare` where nothing is compared. Must be atomic_valid().
void atomic_apply(std::uint8_t datatype, std::uint8_t op, void* target, const void* operand,
                  const void* compare, void* result, std::size_t count) noexcept;

}  // namespace heddle::protocol
