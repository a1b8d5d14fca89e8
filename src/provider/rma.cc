// SPDX-License-Identifier: BSD-2-Clause
// fi_rma(3): reads and writes of a peer's registered memory.
#include <rdma/fi_rma.h>

#include <iterator>

#include "provider/endpoint.h"
#include "provider/limits.h"

namespace heddle::provider {
namespace {

using protocol::RmaArguments;
using protocol::RmaSegment;

ssize_t move(Endpoint& endpoint, const iovec* iov, void* const* descriptors, std::size_t count,
             fi_addr_t to, std::uint64_t address, std::uint64_t key, std::uint64_t data,
             std::uint64_t kind, void* context) noexcept {
    if (count > kMaxIov) return -FI_EINVAL;
    HEDDLE_DEBUG_ASSERT((kind & FI_READ) != 0 || (kind & FI_WRITE) != 0);
    const RmaSegment remote{address, total(iov, count), key};
    std::uint64_t flags = endpoint.sending.flags | kind;
    if ((kind & FI_READ) != 0)
        flags &= ~FI_INJECT;  // this default is for sends and writes
    else if (endpoint.too_long(remote.bytes))
        return -FI_EMSGSIZE;
    return endpoint.rdm->rma({.iov = iov,
                              .iov_count = count,
                              .descriptors = descriptors,
                              .to = to,
                              .remote = &remote,
                              .remote_count = 1,
                              .data = data,
                              .flags = flags,
                              .context = context});
}

ssize_t move_several(fid_ep* handle, const iovec* iov, void* const* descriptors, std::size_t count,
                     fi_addr_t to, std::uint64_t address, std::uint64_t key, std::uint64_t kind,
                     void* context) noexcept {
    return operate(handle, [&](Endpoint& endpoint) {
        return move(endpoint, iov, endpoint.usable(descriptors), count, to, address, key, 0, kind,
                    context);
    });
}

ssize_t move_one(fid_ep* handle, const void* buffer, std::size_t bytes, void* descriptor,
                 fi_addr_t to, std::uint64_t address, std::uint64_t key, std::uint64_t data,
                 std::uint64_t kind, void* context) noexcept {
    return operate(handle, [&](Endpoint& endpoint) {
        const iovec iov{const_cast<void*>(buffer), bytes};
        const bool is_usable = endpoint.is_usable_by_rma(descriptor, iov, (kind & FI_READ) != 0);
        return move(endpoint, &iov, is_usable ? &descriptor : nullptr, 1, to, address, key, data,
                    kind, context);
    });
}

ssize_t move_message(fid_ep* handle, const fi_msg_rma& message, std::uint64_t kind,
                     std::uint64_t flags) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (message.iov_count > kMaxIov || message.rma_iov_count > kMaxIov) return -FI_EINVAL;
        if ((flags & ~kTransmitFlags) != 0) return -FI_EBADFLAGS;
        const std::size_t bytes = total(message.msg_iov, message.iov_count);
        if ((flags & FI_INJECT) != 0 && bytes > endpoint.inject_bytes) return -FI_EMSGSIZE;
        RmaSegment remote[kMaxIov];
        std::size_t remote_bytes = 0;
        for (std::size_t i = 0; i < message.rma_iov_count; ++i) {
            const fi_rma_iov& each = message.rma_iov[i];
            remote[i] = {each.addr, each.len, each.key};
            remote_bytes += each.len;
        }
        if (remote_bytes != bytes) return -FI_EINVAL;
        HEDDLE_DEBUG_ASSERT(message.rma_iov_count <= std::size(remote));
        return endpoint.rdm->rma({.iov = message.msg_iov,
                                  .iov_count = message.iov_count,
                                  .descriptors = endpoint.usable(message.desc),
                                  .to = message.addr,
                                  .remote = remote,
                                  .remote_count = message.rma_iov_count,
                                  .data = message.data,
                                  .flags = flags | endpoint.sending.completion | kind,
                                  .context = message.context});
    });
}

ssize_t inject_write(fid_ep* handle, const void* buffer, std::size_t bytes, fi_addr_t to,
                     std::uint64_t address, std::uint64_t key, std::uint64_t data,
                     std::uint64_t kind) noexcept {
    return operate(handle, [&](Endpoint& endpoint) -> ssize_t {
        if (bytes > endpoint.inject_bytes) return -FI_EMSGSIZE;
        const iovec iov{const_cast<void*>(buffer), bytes};
        const RmaSegment remote{address, bytes, key};
        return endpoint.rdm->rma({.iov = &iov,
                                  .iov_count = 1,
                                  .descriptors = nullptr,
                                  .to = to,
                                  .remote = &remote,
                                  .remote_count = 1,
                                  .data = data,
                                  .flags = FI_INJECT | FI_WRITE | kind,
                                  .context = nullptr});
    });
}

ssize_t read_remote(fid_ep* ep, void* buffer, std::size_t bytes, void* descriptor, fi_addr_t from,
                    std::uint64_t address, std::uint64_t key, void* context) {
    return move_one(ep, buffer, bytes, descriptor, from, address, key, 0, FI_READ, context);
}
ssize_t readv(fid_ep* ep, const iovec* iov, void** descriptors, std::size_t count, fi_addr_t from,
              std::uint64_t address, std::uint64_t key, void* context) {
    return move_several(ep, iov, descriptors, count, from, address, key, FI_READ, context);
}
ssize_t readmsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    if ((flags & (FI_INJECT | FI_REMOTE_CQ_DATA)) != 0) return -FI_EBADFLAGS;
    return move_message(ep, *message, FI_READ, flags);
}
ssize_t write_remote(fid_ep* ep, const void* buffer, std::size_t bytes, void* descriptor,
                     fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
    return move_one(ep, buffer, bytes, descriptor, to, address, key, 0, FI_WRITE, context);
}
ssize_t writev(fid_ep* ep, const iovec* iov, void** descriptors, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, void* context) {
    return move_several(ep, iov, descriptors, count, to, address, key, FI_WRITE, context);
}
ssize_t writemsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    return move_message(ep, *message, FI_WRITE, flags);
}
ssize_t inject_remote(fid_ep* ep, const void* buffer, std::size_t bytes, fi_addr_t to,
                      std::uint64_t address, std::uint64_t key) {
    return inject_write(ep, buffer, bytes, to, address, key, 0, 0);
}
ssize_t writedata(fid_ep* ep, const void* buffer, std::size_t bytes, void* descriptor,
                  std::uint64_t data, fi_addr_t to, std::uint64_t address, std::uint64_t key,
                  void* context) {
    return move_one(ep, buffer, bytes, descriptor, to, address, key, data,
                    FI_WRITE | FI_REMOTE_CQ_DATA, context);
}
ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t bytes, std::uint64_t data,
                   fi_addr_t to, std::uint64_t address, std::uint64_t key) {
    return inject_write(ep, buffer, bytes, to, address, key, data, FI_REMOTE_CQ_DATA);
}

fi_ops_rma rma_ops = {
    .size = sizeof(fi_ops_rma),
    .read = read_remote,
    .readv = readv,
    .readmsg = readmsg,
    .write = write_remote,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject_remote,
    .writedata = writedata,
    .injectdata = injectdata,
};

}  // namespace

fi_ops_rma& rma_table() noexcept { return rma_ops; }

}  // namespace heddle::provider
