// SPDX-License-Identifier: BSD-2-Clause
// What exports.cc offers to other sources of the engine.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>

namespace softhca::engine {

// libmlx5's mlx5dv_init_obj(), in front of which ours stands; nullptr if there is no libmlx5.
using InitObj = int (*)(mlx5dv_obj*, std::uint64_t);
InitObj real_init_obj() noexcept;

}  // namespace softhca::engine
