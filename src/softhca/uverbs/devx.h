// SPDX-License-Identifier: BSD-2-Clause
// DEVX: firmware commands that a program or libmlx5 sends to the device itself (kernel:
// drivers/infiniband/hw/mlx5/devx.c). Supported are queries of the capabilities, and memory keys.
#pragma once

#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/prm.h"

namespace softhca::uverbs {

// The methods of MLX5_IB_OBJECT_DEVX and MLX5_IB_OBJECT_DEVX_OBJ. Returns 0 or an errno;
// EREMOTEIO: the firmware refused the command, and the response has its status.
int devx_method(DeviceContext& context, unsigned object, unsigned method,
                const Attributes& attributes) noexcept;

// QUERY_HCA_CAP.
prm::Status query_hca_cap(DeviceContext& context, const prm::Structure& in,
                          prm::Structure& out) noexcept;

// CREATE_MKEY. `index`: of the key in Segment.mkeys.
prm::Status create_mkey(DeviceContext& context, const prm::Structure& in, prm::Structure& out,
                        std::uint32_t* index) noexcept;
void free_mkey(DeviceContext& context, std::uint32_t index) noexcept;

}  // namespace softhca::uverbs
