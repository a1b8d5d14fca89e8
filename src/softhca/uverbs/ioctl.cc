// SPDX-License-Identifier: BSD-2-Clause
// ioctl(RDMA_VERBS_IOCTL): rdma/rdma_user_ioctl_cmds.h. All write commands arrive by the method
// INVOKE_WRITE, and UAR objects have methods of their own. Any other method gets EPROTONOSUPPORT;
// libibverbs then falls back to INVOKE_WRITE if there is a write command.
#include <endian.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <unistd.h>

#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/memory/remote.h"
#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/devx.h"
#include "softhca/uverbs/own_stack.h"
#include "softhca/uverbs/uar.h"
#include "softhca/uverbs/unsupported.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::uverbs {
namespace {

int invoke_write(DeviceContext& context, const Attributes& attributes) noexcept {
    const ib_uverbs_attr* number = attributes.find(UVERBS_ATTR_WRITE_CMD);
    if (!number) return EINVAL;
    const auto value = static_cast<std::uint32_t>(number->data);
    Command command{context,
                    value & ~static_cast<std::uint32_t>(IB_USER_VERBS_CMD_FLAG_EXTENDED),
                    (value & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0,
                    attributes.input(UVERBS_ATTR_CORE_IN),
                    attributes.output(UVERBS_ATTR_CORE_OUT),
                    attributes.input(UVERBS_ATTR_UHW_IN),
                    attributes.output(UVERBS_ATTR_UHW_OUT)};
    // libibverbs uses this request to ask whether the ioctl interface takes write commands.
    if (!attributes.find(UVERBS_ATTR_CORE_IN) && !attributes.find(UVERBS_ATTR_CORE_OUT) &&
        value == IB_USER_VERBS_CMD_QUERY_DEVICE)
        return ENOSPC;
    return run_command(command);
}

int uar_object(DeviceContext& context, unsigned method, const Attributes& attributes) noexcept {
    if (method == MLX5_IB_METHOD_UAR_OBJ_ALLOC) {
        const ib_uverbs_attr* type = attributes.find(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
        if (!type) return EINVAL;
        UarObject uar{};
        if (const int error = alloc_uar(context, static_cast<std::uint32_t>(type->data), &uar))
            return error;
        int error = attributes.put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, uar.mmap_offset);
        if (!error) error = attributes.put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, uar.length);
        if (!error) error = attributes.put(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uar.page);
        if (!error) error = attributes.put_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, uar.page);
        if (error) free_uar(context, uar.page);
        return error;
    }
    if (method == MLX5_IB_METHOD_UAR_OBJ_DESTROY) {
        const ib_uverbs_attr* handle = attributes.find(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
        return handle ? free_uar(context, static_cast<std::uint32_t>(handle->data)) : EINVAL;
    }
    return EPROTONOSUPPORT;
}

// Whether a forked child may send this command on a descriptor that it inherited: see
// give_record().
bool open_to_heirs(const ib_uverbs_ioctl_hdr& header, const Attributes& attributes) noexcept {
    if (header.object_id == UVERBS_OBJECT_DM) return true;
    std::uint64_t command;
    if (header.object_id != UVERBS_OBJECT_DEVICE ||
        header.method_id != UVERBS_METHOD_INVOKE_WRITE ||
        attributes.value(UVERBS_ATTR_WRITE_CMD, &command))
        return false;
    // The command may be extended or not.
    command &= ~std::uint64_t{IB_USER_VERBS_CMD_FLAG_EXTENDED};
    return command == IB_USER_VERBS_CMD_QUERY_DEVICE || command == IB_USER_VERBS_CMD_QUERY_PORT;
}

int dispatch(DeviceContext& context, const ib_uverbs_ioctl_hdr& header,
             const Attributes& attributes) noexcept {
    if (header.object_id == UVERBS_OBJECT_DEVICE && header.method_id == UVERBS_METHOD_INVOKE_WRITE)
        return invoke_write(context, attributes);
    if (header.object_id == MLX5_IB_OBJECT_UAR)
        return uar_object(context, header.method_id, attributes);
    const bool devx =
        header.object_id == MLX5_IB_OBJECT_DEVX || header.object_id == MLX5_IB_OBJECT_DEVX_OBJ;
    const int error = devx && context.record != device::kNone
                          ? devx_method(context, header.object_id, header.method_id, attributes)
                          : run_method(context, header.object_id, header.method_id, attributes);
    return error == EPROTONOSUPPORT ? unsupported_method(header.object_id, header.method_id)
                                    : error;
}

}  // namespace

int copy_in(void* to, std::uint64_t from, std::size_t length) noexcept {
    if (in_callers_frames(from, length)) [[likely]] {
        std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(from)), length);
        return 0;
    }
    iovec local{to, length};
    iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(from)), length};
    return device::memory::copy_from(getpid(), &local, 1, &remote, 1, length);
}

int copy_out(std::uint64_t to, const void* from, std::size_t length) noexcept {
    if (in_callers_frames(to, length)) [[likely]] {
        std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(to)), from, length);
        return 0;
    }
    iovec local{const_cast<void*>(from), length};
    iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(to)), length};
    return device::memory::copy_to(getpid(), &local, 1, &remote, 1, length);
}

int ioctl(int fd, unsigned long request, void* argument) noexcept {
    const auto fail = [](int error) {
        errno = error;
        return -1;
    };
    if (request != RDMA_VERBS_IOCTL) return fail(ENOTTY);
    const std::shared_ptr<DeviceContext> context = find_context(fd);
    if (!context) return fail(EIO);  // inherited through fork: the device is the parent's
    ib_uverbs_ioctl_hdr header{};
    const auto where = reinterpret_cast<std::uintptr_t>(argument);
    if (copy_in(&header, where, sizeof header)) return fail(EFAULT);
    Attributes attributes;
    if (header.num_attrs > kMaxAttributes ||
        header.length != sizeof header + header.num_attrs * sizeof(ib_uverbs_attr))
        return fail(EINVAL);
    if (header.reserved1 || header.reserved2) return fail(EPROTONOSUPPORT);
    attributes.count = header.num_attrs;
    attributes.where = where + sizeof header;
    if (attributes.count && copy_in(attributes.list.data(), attributes.where,
                                    attributes.count * sizeof(ib_uverbs_attr)))
        return fail(EFAULT);
    if (context->inherited) {
        if (!open_to_heirs(header, attributes)) return fail(EIO);
        if (const int error = give_record(*context)) return fail(error);
    }
    if (!device::Fabric::current()) return fail(EIO);
    SOFTHCA_ASSERT(attributes.count <= kMaxAttributes && context->fabric != nullptr);
    const int error = dispatch(*context, header, attributes);
    SOFTHCA_ASSERT(error >= 0);
    return error ? fail(error) : 0;
}

}  // namespace softhca::uverbs
