// SPDX-License-Identifier: BSD-2-Clause
// Wraps the functions that libmlx5 stores in the ibv_context's ops table and in extended QPs and
// CQs, so that the engine learns of posts without a doorbell. Only public fields of
// infiniband/verbs.h are changed. Posts that bypass them (mlx5dv users) are found by the progress
// thread, or announced by the doorbell hook.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// How a program polls a CQ: by ibv_poll_cq(), by ibv_start_poll() and its relatives, or by
// functions that are not wrapped.
enum class PolledBy { kUnseen, kCall, kBatch };

// `user_handle` of a CREATE command is the application's ibv_cq or ibv_qp. Its context is wrapped
// once.
PolledBy hook_cq(std::uint32_t index, std::uint64_t user_handle, bool extended) noexcept;
void hook_qp(LocalQp& local, std::uint64_t user_handle) noexcept;
void unhook_cq(std::uint32_t index) noexcept;

}  // namespace softhca::engine
