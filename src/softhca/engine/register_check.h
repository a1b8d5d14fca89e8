// SPDX-License-Identifier: BSD-2-Clause
// Trait `shared-uuar`: a BlueFlame write consists of several bus writes, so two threads that write
// one uUAR need a common lock. libmlx5's lock is its own: QPs that libmlx5 posts to and QPs that a
// program posts to directly have none. Where such threads meet on a uUAR, an adapter may execute a
// mixture of both writes; this device lets the QP of the second fail, whether they overlap or not.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

enum class RegisterWriter : std::uint8_t { kDriver = 1, kDirect = 2 };

// This thread has written the uUAR of `qp`. Called only with the trait. Inside an epoch.
[[gnu::cold, gnu::noinline]] void check_register_write(device::Fabric& fabric,
                                                       device::QueuePair& qp, std::uint32_t index,
                                                       RegisterWriter writer,
                                                       bool blueflame) noexcept;

}  // namespace softhca::engine
