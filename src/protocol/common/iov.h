// SPDX-License-Identifier: BSD-2-Clause
// Bytes into and out of the buffers of an operation. By any thread that may touch these.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "common/copy.h"

namespace heddle::protocol {

// Fills `to` with what the buffers hold from byte `offset` on, as far as they go. Returns the end
// of what was written.
inline std::byte* gather(std::span<const iovec> from, std::size_t offset,
                         std::span<std::byte> to) noexcept {
    std::size_t done = 0;
    for (const iovec& buffer : from) {
        const std::size_t skipped = std::min(offset, buffer.iov_len);
        const std::size_t bytes = std::min(buffer.iov_len - skipped, to.size() - done);
        if (bytes != 0)
            common::copy_payload(to.data() + done,
                                 static_cast<const std::byte*>(buffer.iov_base) + skipped, bytes);
        offset -= skipped;
        done += bytes;
    }
    return to.data() + done;
}

// Puts the bytes into the buffers from byte `offset` on. Returns how many fitted.
inline std::size_t scatter(std::span<const iovec> to, std::size_t offset,
                           std::span<const std::byte> from) noexcept {
    std::size_t done = 0;
    for (const iovec& buffer : to) {
        const std::size_t skipped = std::min(offset, buffer.iov_len);
        const std::size_t bytes = std::min(buffer.iov_len - skipped, from.size() - done);
        if (bytes != 0)
            common::copy_payload(static_cast<std::byte*>(buffer.iov_base) + skipped,
                                 from.data() + done, bytes);
        offset -= skipped;
        done += bytes;
    }
    return done;
}

}  // namespace heddle::protocol
