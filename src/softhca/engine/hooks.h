// SPDX-License-Identifier: BSD-2-Clause
// How the engine learns of posts without a doorbell: it wraps the functions that libmlx5 put into
// the ibv_context's ops table and into extended QPs and CQs. Only public fields of
// infiniband/verbs.h are touched. What is posted past them (mlx5dv users) is found by the progress
// thread, or announced by the doorbell hook.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// user_handle of a CREATE command: the application's ibv_cq or ibv_qp, whose context is wrapped
// (once).
void hook_cq(std::uint32_t index, std::uint64_t user_handle, bool extended) noexcept;
void hook_qp(LocalQp& local, std::uint64_t user_handle) noexcept;
void unhook_cq(std::uint32_t index) noexcept;

}  // namespace softhca::engine
