// SPDX-License-Identifier: BSD-2-Clause
// Writes and reads netlink messages: see message.h.
#include "softhca/nldev/message.h"

#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/nldev/abi.h"

namespace softhca::nldev {
namespace {

enum class Form { kIgnored, kU32, kText };

struct Policy {
    Form form;
    std::size_t most;  // for text: characters without the terminator
};

Policy policy_of(std::uint16_t type) noexcept {
    switch (type) {
        case RDMA_NLDEV_ATTR_DEV_INDEX:
        case RDMA_NLDEV_ATTR_PORT_INDEX:
        case RDMA_NLDEV_ATTR_RES_LQPN:
        case RDMA_NLDEV_ATTR_RES_PDN:
        case RDMA_NLDEV_ATTR_RES_CQN:
        case RDMA_NLDEV_ATTR_RES_MRN:
        case RDMA_NLDEV_ATTR_RES_CM_IDN:
        case RDMA_NLDEV_ATTR_RES_CTXN:
        case kResSrqn:
            return {Form::kU32, 0};
        case RDMA_NLDEV_ATTR_DEV_NAME:
            return {Form::kText, 63};  // IB_DEVICE_NAME_MAX - 1
        case RDMA_NLDEV_ATTR_CHARDEV_TYPE:
            return {Form::kText, 127};  // RDMA_NLDEV_ATTR_CHARDEV_TYPE_SIZE - 1
        default:
            return {Form::kIgnored, 0};
    }
}

bool fits(const Policy& policy, std::span<const std::byte> value) noexcept {
    switch (policy.form) {
        case Form::kU32:
            return value.size() >= sizeof(std::uint32_t);
        case Form::kText:
            return !value.empty() &&
                   std::memchr(value.data(), 0, std::min(value.size(), policy.most + 1)) != nullptr;
        case Form::kIgnored:
            break;
    }
    return true;
}

}  // namespace

void Datagram::take_back(Mark mark) noexcept {
    SOFTHCA_ASSERT(mark <= bytes_.size());
    bytes_.resize(mark);
    overflowed_ = false;
}

std::byte* Datagram::grow(std::size_t length) noexcept {
    const std::size_t at = bytes_.size();
    SOFTHCA_ASSERT(at % 4 == 0 && at <= bytes_.capacity());
    if (overflowed_ || length > bytes_.capacity() || aligned(length) > bytes_.capacity() - at) {
        overflowed_ = true;
        return nullptr;
    }
    bytes_.resize(at + aligned(length));  // within the capacity, so it does not allocate
    return bytes_.data() + at;
}

Datagram::Mark Datagram::begin_message(std::uint16_t type, std::uint16_t flags,
                                       std::uint32_t sequence, std::uint32_t port) noexcept {
    const Mark at = mark();
    const nlmsghdr header{0, type, flags, sequence, port};
    raw(&header, sizeof header);
    return at;
}

void Datagram::end_message(Mark message) noexcept {
    if (overflowed_) return;
    SOFTHCA_ASSERT(message + sizeof(nlmsghdr) <= bytes_.size() && message % 4 == 0);
    const auto length = static_cast<std::uint32_t>(bytes_.size() - message);
    std::memcpy(bytes_.data() + message + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
}

void Datagram::raw(const void* from, std::size_t length) noexcept {
    std::byte* to = grow(length);
    if (to && length) std::memcpy(to, from, length);
}

void Datagram::put(std::uint16_t type, const void* from, std::size_t length) noexcept {
    SOFTHCA_ASSERT(sizeof(nlattr) + length <= 0xffff);
    std::byte* to = grow(sizeof(nlattr) + length);
    if (!to) return;
    const nlattr header{static_cast<std::uint16_t>(sizeof(nlattr) + length), type};
    std::memcpy(to, &header, sizeof header);
    if (length) std::memcpy(to + sizeof header, from, length);
}

void Datagram::text(std::uint16_t type, const char* value) noexcept {
    SOFTHCA_ASSERT(value != nullptr);
    put(type, value, std::strlen(value) + 1);
}

Datagram::Mark Datagram::begin_nest(std::uint16_t type) noexcept {
    const Mark at = mark();
    put(type, nullptr, 0);
    return at;
}

void Datagram::end_nest(Mark nest) noexcept {
    if (overflowed_) return;
    SOFTHCA_ASSERT(nest + sizeof(nlattr) <= bytes_.size() && bytes_.size() - nest <= 0xffff);
    const auto length = static_cast<std::uint16_t>(bytes_.size() - nest);
    std::memcpy(bytes_.data() + nest + offsetof(nlattr, nla_len), &length, sizeof length);
}

bool Attributes::next(std::size_t* at, std::uint16_t* type,
                      std::span<const std::byte>* value) const noexcept {
    nlattr header;
    if (*at > payload_.size() || payload_.size() - *at < sizeof header) return false;
    std::memcpy(&header, payload_.data() + *at, sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > payload_.size() - *at) return false;
    *type = header.nla_type & NLA_TYPE_MASK;
    *value = payload_.subspan(*at + sizeof header, header.nla_len - sizeof header);
    SOFTHCA_DEBUG_ASSERT(*at % 4 == 0);
    *at += aligned(header.nla_len);
    return true;
}

bool Attributes::valid() const noexcept {
    std::size_t at = 0;
    std::uint16_t type;
    std::span<const std::byte> value;
    while (next(&at, &type, &value))
        if (!fits(policy_of(type), value)) return false;
    return true;
}

std::optional<std::span<const std::byte>> Attributes::find(std::uint16_t wanted) const noexcept {
    std::optional<std::span<const std::byte>> found;
    std::size_t at = 0;
    std::uint16_t type;
    std::span<const std::byte> value;
    while (next(&at, &type, &value))
        if (type == wanted) found = value;
    return found;
}

std::optional<std::uint32_t> Attributes::u32(std::uint16_t type) const noexcept {
    const auto value = find(type);
    std::uint32_t number;
    if (!value || value->size() < sizeof number) return std::nullopt;
    std::memcpy(&number, value->data(), sizeof number);
    return number;
}

std::optional<std::string_view> Attributes::text(std::uint16_t type) const noexcept {
    const auto value = find(type);
    if (!value) return std::nullopt;
    const std::string_view all(reinterpret_cast<const char*>(value->data()), value->size());
    return all.substr(0, all.find('\0'));
}

}  // namespace softhca::nldev
