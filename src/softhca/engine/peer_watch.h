// SPDX-License-Identifier: BSD-2-Clause
// What other processes do to the QPs of this one: a peer puts a QP into error, dies in the middle
// of a message, or goes and leaves a connected QP alone. The progress thread looks.
#pragma once

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// The QPs whose state a peer has changed: they are flushed, or run again. Inside an epoch.
void look_at_attention(device::Fabric& fabric) noexcept;

// QPs in error whose sender died in the middle of a message after that.
void finish_broken_off(device::Fabric& fabric) noexcept;

// SOFTHCA_LOST_PEER=flush: fails connected QPs whose peer's QP is gone. Inside an epoch.
void fail_lost(device::Fabric& fabric) noexcept;

// Is there another process in the fabric?
bool others_alive(device::Fabric& fabric) noexcept;

}  // namespace softhca::engine
