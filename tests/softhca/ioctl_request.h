// SPDX-License-Identifier: BSD-2-Clause
// Commands as libibverbs sends them to the kernel, for what it offers no function for.
#pragma once

#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::test {

// One ioctl: an object, a method, and attributes.
class IoctlRequest {
public:
    IoctlRequest(std::uint16_t object, std::uint16_t method) {
        header_.object_id = object;
        header_.method_id = method;
    }
    void add(std::uint16_t id, std::uint64_t data, std::uint16_t length = 0) {
        ib_uverbs_attr& attr = attributes_[header_.num_attrs++];
        attr.attr_id = id;
        attr.len = length;
        attr.flags = UVERBS_ATTR_F_MANDATORY;
        attr.data = data;
    }
    int run(int fd) {
        const std::size_t bytes = header_.num_attrs * sizeof(ib_uverbs_attr);
        header_.length = static_cast<std::uint16_t>(sizeof header_ + bytes);
        alignas(8) std::byte message[sizeof header_ + sizeof attributes_];
        std::memcpy(message, &header_, sizeof header_);
        std::memcpy(message + sizeof header_, attributes_, bytes);
        const int result = ioctl(fd, RDMA_VERBS_IOCTL, message);
        std::memcpy(attributes_, message + sizeof header_, bytes);
        return result;
    }
    std::uint32_t handle(std::size_t i) const {
        return static_cast<std::uint32_t>(attributes_[i].data);
    }

private:
    ib_uverbs_attr attributes_[8] = {};
    ib_uverbs_ioctl_hdr header_ = {};  // last, for it ends in an array of any length
};

}  // namespace softhca::test
