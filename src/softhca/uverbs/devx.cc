// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/uverbs/devx.h"

#include <errno.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <mutex>
#include <new>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/missing.h"

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

Status no_such_command(const Structure& in) noexcept {
    constexpr std::uint32_t kQueryLag = 0x842;  // UCX asks each device, and goes on without
    const bool is_probe = in.get(prm::kOpcode) == kQueryLag;
    if (is_probe)
        missing(0, "link aggregation (QUERY_LAG)", LogLevel::kInfo);
    else
        missing(0, "a firmware command of DEVX (SOFTHCA_LOG=debug has its number)");
    return Status::kBadOperation;
}

Status general(DeviceContext& context, const Structure& in, Structure& out) noexcept {
    if (in.get(prm::kOpcode) == static_cast<std::uint32_t>(Opcode::kQueryHcaCap))
        return query_hca_cap(context, in, out);
    return no_such_command(in);
}

Status create_object(DeviceContext& context, const Structure& in, Structure& out,
                     FirmwareObject* object) noexcept {
    switch (static_cast<Opcode>(in.get(prm::kOpcode))) {
        case Opcode::kCreateMkey:
            return create_mkey(context, in, out, object);
        case Opcode::kCreateGeneralObject:
            return create_general_object(context, in, out, object);
        default:
            return no_such_command(in);
    }
}

void free_object(DeviceContext& context, const FirmwareObject& object) noexcept {
    switch (object.kind) {
        case FirmwareObject::Kind::kMkey:
            return free_mkey(context, object.index);
        case FirmwareObject::Kind::kReservedNumber:
            return free_reserved_number(context, object.index);
        case FirmwareObject::Kind::kAddressMapping:
            return;
    }
}

int create(DeviceContext& context, const Attributes& attributes) {
    const std::lock_guard<std::mutex> guard(context.mutex);
    const std::uint32_t handle = ++context.last_firmware_object;
    // Before there is an object, because this may throw. Until then it is one that holds nothing.
    FirmwareObject& object =
        context.firmware_objects
            .try_emplace(handle, FirmwareObject{FirmwareObject::Kind::kAddressMapping, 0})
            .first->second;
    bool is_made = false;
    int error =
        exchange(attributes, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                 MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, [&](const Structure& in, Structure& out) {
                     const Status status = create_object(context, in, out, &object);
                     is_made = status == Status::kOk;
                     return status;
                 });
    if (!error) error = attributes.put_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
    if (!error) return 0;
    if (is_made) free_object(context, object);
    context.firmware_objects.erase(handle);
    return error;
}

int destroy(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t handle;
    if (const int error = attributes.value(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, &handle))
        return error;
    const std::lock_guard<std::mutex> guard(context.mutex);
    const auto found = context.firmware_objects.find(static_cast<std::uint32_t>(handle));
    if (found == context.firmware_objects.end()) return ENOENT;
    free_object(context, found->second);
    context.firmware_objects.erase(found);
    return 0;
}

int modify(DeviceContext& context, const Attributes& attributes) {
    std::uint64_t handle;
    if (const int error = attributes.value(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, &handle))
        return error;
    return exchange(attributes, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
                    [&](const Structure& in, const Structure&) {
                        return change_qp(context, static_cast<std::uint32_t>(handle), in);
                    });
}

}  // namespace

void free_firmware_objects(DeviceContext& context) noexcept {
    for (const auto& [handle, object] : context.firmware_objects)
        free_object(context, object);
    context.firmware_objects.clear();
}

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
        if (is_object && method == MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
            return context.takes_commands ? modify(context, attributes) : EINVAL;
        if (is_object && method == MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
            return destroy(context, attributes);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    return EPROTONOSUPPORT;
}

}  // namespace softhca::uverbs
