// SPDX-License-Identifier: BSD-2-Clause
// Bytes into and out of the buffers of an operation, and parts of these. By any thread that may
// touch the buffers.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "common/copy.h"

namespace heddle::protocol {

inline std::size_t bytes_of(const iovec& buffer) noexcept { return buffer.iov_len; }

// Calls use(buffer, skipped, bytes) for each buffer that has some of the bytes [offset, offset +
// bytes) of them all: the first `skipped` of its own are not among these, and the `bytes` behind
// them are. Returns how many bytes the buffers lack. A Buffer has bytes_of().
template <class Buffer, class Use>
std::size_t for_each_part(std::span<const Buffer> buffers, std::size_t offset, std::size_t bytes,
                          const Use& use) noexcept {
    for (const Buffer& buffer : buffers) {
        const std::size_t skipped = std::min(offset, bytes_of(buffer));
        const std::size_t taken = std::min(bytes_of(buffer) - skipped, bytes);
        if (taken != 0) use(buffer, skipped, taken);
        offset -= skipped;
        bytes -= taken;
    }
    return bytes;
}

// Fills `to` with what the buffers hold from byte `offset` on, as far as they go. Returns the end
// of what was written.
inline std::byte* gather(std::span<const iovec> from, std::size_t offset,
                         std::span<std::byte> to) noexcept {
    std::byte* at = to.data();
    for_each_part(from, offset, to.size(),
                  [&at](const iovec& buffer, std::size_t skipped, std::size_t bytes) {
                      common::copy_payload(
                          at, static_cast<const std::byte*>(buffer.iov_base) + skipped, bytes);
                      at += bytes;
                  });
    return at;
}

// Puts the bytes into the buffers from byte `offset` on. Returns how many fitted.
inline std::size_t scatter(std::span<const iovec> to, std::size_t offset,
                           std::span<const std::byte> from) noexcept {
    const std::byte* at = from.data();
    const std::size_t left = for_each_part(
        to, offset, from.size(),
        [&at](const iovec& buffer, std::size_t skipped, std::size_t bytes) {
            common::copy_payload(static_cast<std::byte*>(buffer.iov_base) + skipped, at, bytes);
            at += bytes;
        });
    return from.size() - left;
}

}  // namespace heddle::protocol
