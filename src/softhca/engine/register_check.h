// SPDX-License-Identifier: BSD-2-Clause
// Trait `shared-uuar`. A BlueFlame write consists of several bus writes, so two threads that write
// one uUAR need a common lock. QPs that libmlx5 posts to use libmlx5's lock, which a program that
// posts directly does not have. If such threads meet on a uUAR, an adapter may execute a mixture of
// both writes. This device fails the QP of the second thread, whether the writes overlap or not.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

enum class RegisterWriter : std::uint8_t { kDriver = 1, kDirect = 2 };

// This thread has written the uUAR of `qp`. Called only with the trait. The caller is inside an
// epoch.
[[gnu::cold, gnu::noinline]] void check_register_write(device::Fabric& fabric,
                                                       device::QueuePair& qp, std::uint32_t index,
                                                       RegisterWriter writer,
                                                       bool blueflame) noexcept;

}  // namespace softhca::engine
