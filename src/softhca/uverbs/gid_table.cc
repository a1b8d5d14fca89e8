// SPDX-License-Identifier: BSD-2-Clause
// UVERBS_METHOD_QUERY_GID_TABLE and _ENTRY (uverbs_std_types_device.c of the kernel): the used
// entries of the ports' GID tables. Libraries that lack these methods read sysfs instead.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/command.h"

namespace softhca::uverbs {

namespace {

ib_uverbs_gid_entry described(const device::Port& port, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < device::kGidTableLength);
    const device::GidEntry entry = port.gid(index);
    ib_uverbs_gid_entry out{};
    entry.copy_to(reinterpret_cast<std::uint8_t*>(out.gid));
    out.gid_index = index;
    out.port_num = port.number();
    out.gid_type = !port.is_ethernet()                  ? IB_UVERBS_GID_TYPE_IB
                   : entry.type == device::GidType::kV2 ? IB_UVERBS_GID_TYPE_ROCE_V2
                                                        : IB_UVERBS_GID_TYPE_ROCE_V1;
    return out;  // netdev_ifindex is 0: the port has no network interface
}

// No flags are defined yet.
int check_flags(const Attributes& attributes, unsigned id) noexcept {
    const Buffer given = attributes.input(id);
    std::uint32_t flags = 0;
    if (given.present() && copy_in(&flags, given.address, std::min(given.length, sizeof flags)))
        return EFAULT;
    return flags ? EINVAL : 0;
}

}  // namespace

int query_gid_entry(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t port_number = 0, index = 0;
    int error = attributes.value(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, &port_number);
    if (!error) error = attributes.value(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, &index);
    if (!error) error = check_flags(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS);
    if (error) return error;
    const device::Segment& segment = context.fabric->segment();
    if (!device::has_port(segment, port_number) || index >= device::kGidTableLength) return EINVAL;
    const device::Port port = device::port_of(segment, context.device, port_number);
    if (port.gid(static_cast<unsigned>(index)).type == device::GidType::kNone) return ENODATA;
    return attributes.put(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                          described(port, static_cast<std::uint32_t>(index)));
}

int query_gid_table(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t entry_bytes = 0;
    int error = attributes.value(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, &entry_bytes);
    if (!error) error = check_flags(attributes, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS);
    if (error) return error;
    const Buffer entries = attributes.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    if (!entry_bytes || entries.length % entry_bytes) return EINVAL;
    const device::Segment& segment = context.fabric->segment();
    std::uint64_t found = 0;
    for (std::uint32_t number = 1; number <= device::ports_of_device(segment); ++number) {
        const device::Port port = device::port_of(segment, context.device, number);
        for (std::uint32_t i = 0; i < device::kGidTableLength; ++i) {
            if (port.gid(i).type == device::GidType::kNone) continue;
            if (found == entries.length / entry_bytes) return EINVAL;  // no room for all
            const ib_uverbs_gid_entry entry = described(port, i);
            if (copy_out(entries.address + found * entry_bytes, &entry,
                         std::min<std::size_t>(entry_bytes, sizeof entry)))
                return EFAULT;
            ++found;
            SOFTHCA_ASSERT(found * entry_bytes <= entries.length);
        }
    }
    return attributes.put(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, found);
}

}  // namespace softhca::uverbs
