// SPDX-License-Identifier: BSD-2-Clause
// Netlink messages (linux/netlink.h): writes the datagrams that a program receives, and reads the
// attributes of its requests.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace softhca::nldev {

// The kernel's NLMSG_DEFAULT_SIZE with pages of 4 KiB. Programs receive into buffers of a page
// (libmnl's MNL_SOCKET_BUFFER_SIZE).
inline constexpr std::size_t kDatagramBytes = 3776;

// Messages and attributes are aligned to four bytes.
constexpr std::size_t aligned(std::size_t length) noexcept {
    return (length + 3) & ~std::size_t{3};
}

// A datagram that is being written. If something does not fit, the datagram overflows: then it
// takes nothing more until take_back() returns it to an earlier mark. Only the constructor may
// throw std::bad_alloc.
class Datagram {
public:
    using Mark = std::size_t;

    explicit Datagram(std::size_t room = kDatagramBytes) { bytes_.reserve(room); }

    Mark mark() const noexcept { return bytes_.size(); }
    void take_back(Mark mark) noexcept;
    bool overflowed() const noexcept { return overflowed_; }
    bool empty() const noexcept { return bytes_.empty(); }
    std::vector<std::byte> release() noexcept { return std::move(bytes_); }

    // Begins a message with its header. end_message() fills in the header's length.
    Mark begin_message(std::uint16_t type, std::uint16_t flags, std::uint32_t sequence,
                       std::uint32_t port) noexcept;
    void end_message(Mark message) noexcept;

    // Appends the payload of a message that has no attributes.
    void raw(const void* from, std::size_t length) noexcept;

    // Append attributes.
    void put(std::uint16_t type, const void* from, std::size_t length) noexcept;
    void u8(std::uint16_t type, std::uint8_t value) noexcept { put(type, &value, sizeof value); }
    void u32(std::uint16_t type, std::uint32_t value) noexcept { put(type, &value, sizeof value); }
    void u64(std::uint16_t type, std::uint64_t value) noexcept { put(type, &value, sizeof value); }
    void text(std::uint16_t type, const char* value) noexcept;
    Mark begin_nest(std::uint16_t type) noexcept;
    void end_nest(Mark nest) noexcept;

private:
    // Appends `length` zero bytes and their padding. Returns nullptr if they do not fit.
    std::byte* grow(std::size_t length) noexcept;

    std::vector<std::byte> bytes_;
    bool overflowed_ = false;
};

// The attributes of a request. Those that a command reads are checked as by the kernel's
// nldev_policy. Unknown attributes and trailing bytes are ignored (NL_VALIDATE_LIBERAL).
class Attributes {
public:
    explicit Attributes(std::span<const std::byte> payload) noexcept : payload_(payload) {}

    bool valid() const noexcept;
    // If an attribute occurs more than once, the last one counts.
    std::optional<std::uint32_t> u32(std::uint16_t type) const noexcept;
    std::optional<std::string_view> text(std::uint16_t type) const noexcept;

private:
    // Returns false at the end of the readable attributes.
    bool next(std::size_t* at, std::uint16_t* type,
              std::span<const std::byte>* value) const noexcept;
    std::optional<std::span<const std::byte>> find(std::uint16_t type) const noexcept;

    std::span<const std::byte> payload_;
};

}  // namespace softhca::nldev
