// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/uverbs/devx.h"

#include <errno.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <new>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/device/table.h"

namespace softhca::uverbs {
namespace {

using prm::Opcode;
using prm::Status;
using prm::Structure;

constexpr std::size_t kMaxCommandBytes = 65535;  // an attribute's length has 16 bits

// Calls `run` with the command, and gives its response to the program. Throws bad_alloc.
template <class Run>
int exchange(const Attributes& attributes, unsigned in_id, unsigned out_id, Run run) {
    const Buffer command = attributes.input(in_id), response = attributes.output(out_id);
    if (command.length < prm::kHeadBytes || response.length < prm::kHeadBytes) return EINVAL;
    SOFTHCA_ASSERT(command.length <= kMaxCommandBytes && response.length <= kMaxCommandBytes);
    Structure in(command.length), out(response.length);
    if (copy_in(in.data(), command.address, in.size())) return EFAULT;
    const Status status = run(in, out);
    out.set(prm::kStatus, static_cast<std::uint32_t>(status));
    LOG_DEBUG("firmware command 0x%x: status 0x%x", in.get(prm::kOpcode),
              static_cast<unsigned>(status));
    if (copy_out(response.address, out.data(), out.size())) return EFAULT;
    return status == Status::kOk ? 0 : EREMOTEIO;
}

Status general(DeviceContext& context, const Structure& in, Structure& out) noexcept {
    if (in.get(prm::kOpcode) == static_cast<std::uint32_t>(Opcode::kQueryHcaCap))
        return query_hca_cap(context, in, out);
    return Status::kBadOperation;
}

int create(DeviceContext& context, const Attributes& attributes) {
    std::uint32_t index = device::kNone;
    int error =
        exchange(attributes, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                 MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, [&](const Structure& in, Structure& out) {
                     if (in.get(prm::kOpcode) != static_cast<std::uint32_t>(Opcode::kCreateMkey))
                         return Status::kBadOperation;
                     return create_mkey(context, in, out, &index);
                 });
    // The handle is the index, as keys are all that can be created.
    if (!error) error = attributes.put_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, index);
    if (error && index != device::kNone) free_mkey(context, index);
    return error;
}

int destroy(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t handle;
    if (const int error = attributes.value(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, &handle))
        return error;
    if (!device::find_own(context.fabric->segment().mkeys, *context.fabric, context.record,
                          static_cast<std::uint32_t>(handle)))
        return ENOENT;
    free_mkey(context, static_cast<std::uint32_t>(handle));
    return 0;
}

}  // namespace

int devx_method(DeviceContext& context, unsigned object, unsigned method,
                const Attributes& attributes) noexcept {
    try {
        const bool is_object = object == MLX5_IB_OBJECT_DEVX_OBJ;
        if (object == MLX5_IB_OBJECT_DEVX && method == MLX5_IB_METHOD_DEVX_OTHER) {
            if (!context.takes_commands) return EINVAL;
            return exchange(
                attributes, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
                [&](const Structure& in, Structure& out) { return general(context, in, out); });
        }
        if (is_object && method == MLX5_IB_METHOD_DEVX_OBJ_CREATE)
            return context.takes_commands ? create(context, attributes) : EINVAL;
        if (is_object && method == MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
            return destroy(context, attributes);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    return EPROTONOSUPPORT;
}

}  // namespace softhca::uverbs
