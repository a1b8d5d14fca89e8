// SPDX-License-Identifier: BSD-2-Clause
// The common part of sends and receives with and without tags. Everything here is inlined into the
// functions of libfabric's tables, from which each message goes to the protocol.
#pragma once

#include "protocol/send_fast_path.h"
#include "provider/endpoint.h"
#include "provider/limits.h"

namespace heddle::provider {

inline ssize_t send_one(fid_ep* handle, const void* buffer, std::size_t bytes, void* descriptor,
                        fi_addr_t to, std::uint64_t tag, std::uint64_t data, std::uint64_t kind,
                        void* context) noexcept {
    const auto& at = static_cast<const Endpoint&>(*handle);
    if (at.fast.sends != nullptr && !at.too_long(bytes) &&
        at.fast.sends->send_small(buffer, bytes, to, tag, data, kind,
                                  protocol::EntryOfSend::kWhenCopied, context)) [[likely]]
        return 0;
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        HEDDLE_DEBUG_ASSERT((endpoint.sending.flags & kind) == 0,
                            "a default flag names a kind of message");
        if (endpoint.too_long(bytes)) [[unlikely]]
            return -FI_EMSGSIZE;
        const iovec iov{const_cast<void*>(buffer), bytes};
        return endpoint.rdm->send({.iov = &iov,
                                   .iov_count = 1,
                                   .descriptors = endpoint.usable(&descriptor),
                                   .to = to,
                                   .tag = tag,
                                   .data = data,
                                   .flags = endpoint.sending.flags | kind,
                                   .context = context});
    });
}

// fi_inject(3): the message gets no completion entry, and the program may reuse the buffer at
// return.
inline ssize_t inject(fid_ep* handle, const void* buffer, std::size_t bytes, fi_addr_t to,
                      std::uint64_t tag, std::uint64_t data, std::uint64_t kind) noexcept {
    const auto& at = static_cast<const Endpoint&>(*handle);
    if (at.fast.injects != nullptr && bytes <= at.inject_bytes &&
        at.fast.injects->send_small(buffer, bytes, to, tag, data, kind,
                                    protocol::EntryOfSend::kNone, nullptr)) [[likely]]
        return 0;
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (bytes > endpoint.inject_bytes) [[unlikely]]
            return -FI_EMSGSIZE;
        const iovec iov{const_cast<void*>(buffer), bytes};
        return endpoint.rdm->send({.iov = &iov,
                                   .iov_count = 1,
                                   .descriptors = nullptr,
                                   .to = to,
                                   .tag = tag,
                                   .data = data,
                                   .flags = FI_INJECT | kind,
                                   .context = nullptr});
    });
}

inline ssize_t send_vector(fid_ep* handle, const iovec* iov, void* const* descriptors,
                           std::size_t count, fi_addr_t to, std::uint64_t tag, std::uint64_t kind,
                           void* context) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (count > kMaxIov) return -FI_EINVAL;
        if (endpoint.too_long(total(iov, count))) return -FI_EMSGSIZE;
        return endpoint.rdm->send({.iov = iov,
                                   .iov_count = count,
                                   .descriptors = endpoint.usable(descriptors),
                                   .to = to,
                                   .tag = tag,
                                   .data = 0,
                                   .flags = endpoint.sending.flags | kind,
                                   .context = context});
    });
}

// fi_msg and fi_msg_tagged.
template <class Message>
ssize_t send_message(fid_ep* handle, const Message& message, std::uint64_t tag, std::uint64_t kind,
                     std::uint64_t flags) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (message.iov_count > kMaxIov) return -FI_EINVAL;
        if ((flags & ~kTransmitFlags) != 0) return -FI_EBADFLAGS;
        if ((flags & FI_INJECT) != 0 &&
            total(message.msg_iov, message.iov_count) > endpoint.inject_bytes)
            return -FI_EMSGSIZE;
        return endpoint.rdm->send({.iov = message.msg_iov,
                                   .iov_count = message.iov_count,
                                   .descriptors = endpoint.usable(message.desc),
                                   .to = message.addr,
                                   .tag = tag,
                                   .data = message.data,
                                   .flags = flags | endpoint.sending.completion | kind,
                                   .context = message.context});
    });
}

inline ssize_t receive_one(fid_ep* handle, void* buffer, std::size_t bytes, fi_addr_t from,
                           std::uint64_t tag, std::uint64_t ignore, std::uint64_t kind,
                           std::uint64_t dropped, void* context) noexcept {
    return operate(handle, [&](Endpoint& endpoint) {
        const iovec iov{buffer, bytes};
        return endpoint.rdm->receive({.iov = &iov,
                                      .iov_count = 1,
                                      .from = from | endpoint.any_source,
                                      .tag = tag,
                                      .ignore = ignore,
                                      .flags = (endpoint.receiving.flags & ~dropped) | kind,
                                      .context = context});
    });
}

inline ssize_t receive_vector(fid_ep* handle, const iovec* iov, std::size_t count, fi_addr_t from,
                              std::uint64_t tag, std::uint64_t ignore, std::uint64_t kind,
                              std::uint64_t dropped, void* context) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (count > kMaxIov) return -FI_EINVAL;
        return endpoint.rdm->receive({.iov = iov,
                                      .iov_count = count,
                                      .from = from | endpoint.any_source,
                                      .tag = tag,
                                      .ignore = ignore,
                                      .flags = (endpoint.receiving.flags & ~dropped) | kind,
                                      .context = context});
    });
}

template <class Message>
ssize_t receive_message(fid_ep* handle, const Message& message, std::uint64_t tag,
                        std::uint64_t ignore, std::uint64_t kind, std::uint64_t possible,
                        std::uint64_t flags) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (message.iov_count > kMaxIov) return -FI_EINVAL;
        if ((flags & ~possible) != 0) return -FI_EBADFLAGS;
        if ((flags & FI_PEEK) != 0) {
            // A probe always gets an entry, whether it finds a message or not. That entry is there
            // at once, so a program that probes in a loop never reads an empty CQ. Therefore the
            // probe itself makes progress.
            flags |= FI_COMPLETION;
            endpoint.domain->progress();
        }
        return endpoint.rdm->receive({.iov = message.msg_iov,
                                      .iov_count = message.iov_count,
                                      .from = message.addr | endpoint.any_source,
                                      .tag = tag,
                                      .ignore = ignore,
                                      .flags = flags | endpoint.receiving.completion | kind,
                                      .context = message.context});
    });
}

}  // namespace heddle::provider
