// SPDX-License-Identifier: BSD-2-Clause
// fi_tagged(3): messages with tags, which MPI uses.
#include <rdma/fi_tagged.h>

#include "protocol/post_fast_path.h"
#include "provider/message.h"

namespace heddle::provider {
namespace {

// [[gnu::flatten]]: MPI calls these functions for each message, so everything is inlined into them.
[[gnu::flatten]] ssize_t recv(fid_ep* ep, void* buffer, std::size_t bytes, void*, fi_addr_t from,
                              std::uint64_t tag, std::uint64_t ignore, void* context) {
    const auto& at = static_cast<const Endpoint&>(*ep);
    if (at.fast.receives != nullptr &&
        at.fast.receives->receive_plain(buffer, bytes, from | at.any_source, tag, ignore, context))
        [[likely]]
        return 0;
    return receive_one(ep, buffer, bytes, from, tag, ignore, FI_TAGGED, FI_MULTI_RECV, context);
}
ssize_t recvv(fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t from,
              std::uint64_t tag, std::uint64_t ignore, void* context) {
    return receive_vector(ep, iov, count, from, tag, ignore, FI_TAGGED, FI_MULTI_RECV, context);
}
ssize_t recvmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return receive_message(ep, *message, message->tag, message->ignore, FI_TAGGED,
                           kTaggedReceiveFlags, flags);
}
[[gnu::flatten]] ssize_t send(fid_ep* ep, const void* buffer, std::size_t bytes, void* descriptor,
                              fi_addr_t to, std::uint64_t tag, void* context) {
    return send_one(ep, buffer, bytes, descriptor, to, tag, 0, FI_TAGGED, context);
}
ssize_t sendv(fid_ep* ep, const iovec* iov, void** descriptors, std::size_t count, fi_addr_t to,
              std::uint64_t tag, void* context) {
    return send_vector(ep, iov, descriptors, count, to, tag, FI_TAGGED, context);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return send_message(ep, *message, message->tag, FI_TAGGED, flags);
}
[[gnu::flatten]] ssize_t inject_plain(fid_ep* ep, const void* buffer, std::size_t bytes,
                                      fi_addr_t to, std::uint64_t tag) {
    return inject(ep, buffer, bytes, to, tag, 0, FI_TAGGED);
}
[[gnu::flatten]] ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t bytes,
                                  void* descriptor, std::uint64_t data, fi_addr_t to,
                                  std::uint64_t tag, void* context) {
    return send_one(ep, buffer, bytes, descriptor, to, tag, data, FI_TAGGED | FI_REMOTE_CQ_DATA,
                    context);
}
[[gnu::flatten]] ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t bytes,
                                    std::uint64_t data, fi_addr_t to, std::uint64_t tag) {
    return inject(ep, buffer, bytes, to, tag, data, FI_TAGGED | FI_REMOTE_CQ_DATA);
}

fi_ops_tagged tagged_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = recv,
    .recvv = recvv,
    .recvmsg = recvmsg,
    .send = send,
    .sendv = sendv,
    .sendmsg = sendmsg,
    .inject = inject_plain,
    .senddata = senddata,
    .injectdata = injectdata,
};

}  // namespace

fi_ops_tagged& tagged_table() noexcept { return tagged_ops; }

}  // namespace heddle::provider
