// SPDX-License-Identifier: BSD-2-Clause
// DEVX: firmware commands that a program or libmlx5 sends to the device itself (kernel:
// drivers/infiniband/hw/mlx5/devx.c). Supported are queries of the capabilities, memory keys,
// reserved queue pair numbers, mappings of address handles, and the reset of a DCI's stream.
#pragma once

#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/prm.h"

namespace softhca::uverbs {

// obj_type of CREATE_GENERAL_OBJECT; a bit of general_obj_types for each.
enum class GeneralObject : std::uint32_t { kReservedNumber = 0x2c, kAddressMapping = 0x3a };

// The methods of MLX5_IB_OBJECT_DEVX and MLX5_IB_OBJECT_DEVX_OBJ. Returns 0 or an errno;
// EREMOTEIO: the firmware refused the command, and the response has its status.
int devx_method(DeviceContext& context, unsigned object, unsigned method,
                const Attributes& attributes) noexcept;

// Frees what a context has created, when it is closed.
void free_firmware_objects(DeviceContext& context) noexcept;

// QUERY_HCA_CAP.
prm::Status query_hca_cap(DeviceContext& context, const prm::Structure& in,
                          prm::Structure& out) noexcept;

// CREATE_MKEY and CREATE_GENERAL_OBJECT. `object` gets what they have made.
prm::Status create_mkey(DeviceContext& context, const prm::Structure& in, prm::Structure& out,
                        FirmwareObject* object) noexcept;
prm::Status create_general_object(DeviceContext& context, const prm::Structure& in,
                                  prm::Structure& out, FirmwareObject* object) noexcept;
void free_mkey(DeviceContext& context, std::uint32_t index) noexcept;
void free_reserved_number(DeviceContext& context, std::uint32_t index) noexcept;

// RTS2RTS_QP of the queue pair with this handle.
prm::Status change_qp(DeviceContext& context, std::uint32_t handle,
                      const prm::Structure& in) noexcept;

}  // namespace softhca::uverbs
