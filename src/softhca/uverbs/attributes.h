// SPDX-License-Identifier: BSD-2-Clause
// The attributes of one ioctl (struct ib_uverbs_attr of rdma/rdma_user_ioctl_cmds.h).
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <array>
#include <cstddef>

#include "softhca/base/assert.h"
#include "softhca/uverbs/command.h"

namespace softhca::uverbs {

inline constexpr std::size_t kMaxAttributes = 64;  // every method has fewer

struct Attributes {
    std::uint64_t where = 0;  // address of the first attribute in the application
    std::size_t count = 0;
    std::array<ib_uverbs_attr, kMaxAttributes> list;

    const ib_uverbs_attr* find(unsigned id) const noexcept {
        SOFTHCA_DEBUG_ASSERT(count <= list.size());
        for (std::size_t i = 0; i < count; ++i)
            if (list[i].attr_id == id) return &list[i];
        return nullptr;
    }
    // A small input is stored in the attribute itself.
    Buffer input(unsigned id) const noexcept {
        const ib_uverbs_attr* attr = find(id);
        if (!attr || !attr->len) return {};
        if (attr->len <= sizeof attr->data)
            return {reinterpret_cast<std::uintptr_t>(&attr->data), attr->len};
        return {attr->data, attr->len};
    }
    Buffer output(unsigned id) const noexcept {
        const ib_uverbs_attr* attr = find(id);
        return attr ? Buffer{attr->data, attr->len} : Buffer{};
    }
    // The value of a handle, a constant or flags. Returns EINVAL if the attribute is missing.
    int value(unsigned id, std::uint64_t* out) const noexcept {
        const ib_uverbs_attr* attr = find(id);
        if (!attr) return EINVAL;
        *out = attr->data;
        return 0;
    }
    template <class T>
    int put(unsigned id, const T& value) const noexcept {
        const Buffer to = output(id);
        if (!to.present()) return 0;
        return copy_out(to.address, &value, to.length < sizeof value ? to.length : sizeof value);
    }
    // Returns a new handle or descriptor to the application in the attribute.
    int put_handle(unsigned id, std::uint64_t handle) const noexcept {
        const ib_uverbs_attr* attr = find(id);
        if (!attr) return EINVAL;
        SOFTHCA_DEBUG_ASSERT(where != 0 && attr >= list.data() && attr < list.data() + count);
        const std::uint64_t at = where +
                                 static_cast<std::uint64_t>(attr - list.data()) * sizeof *attr +
                                 offsetof(ib_uverbs_attr, data);
        return copy_out(at, &handle, sizeof handle);
    }
};

// Methods that have no write command, or that report more than it does (methods.cc, gid_table.cc,
// context.cc). Each returns 0 or an errno. EPROTONOSUPPORT: the device does not support the method.
int get_context_by_method(DeviceContext& context, const Attributes& attributes) noexcept;
int alloc_async_fd(DeviceContext& context, const Attributes& attributes) noexcept;
int query_gid_entry(DeviceContext& context, const Attributes& attributes) noexcept;
int query_gid_table(DeviceContext& context, const Attributes& attributes) noexcept;
int run_method(DeviceContext& context, unsigned object, unsigned method,
               const Attributes& attributes) noexcept;

}  // namespace softhca::uverbs
