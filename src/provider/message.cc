// SPDX-License-Identifier: BSD-2-Clause
// fi_msg(3): messages without tags.
#include "provider/message.h"

namespace heddle::provider {
namespace {

ssize_t recv(fid_ep* ep, void* buffer, std::size_t bytes, void*, fi_addr_t from, void* context) {
    return receive_one(ep, buffer, bytes, from, 0, 0, 0, 0, context);
}
ssize_t recvv(fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t from,
              void* context) {
    return receive_vector(ep, iov, count, from, 0, 0, 0, 0, context);
}
ssize_t recvmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return receive_message(ep, *message, 0, 0, 0, kReceiveFlags, flags);
}
ssize_t send(fid_ep* ep, const void* buffer, std::size_t bytes, void* descriptor, fi_addr_t to,
             void* context) {
    return send_one(ep, buffer, bytes, descriptor, to, 0, 0, 0, context);
}
ssize_t sendv(fid_ep* ep, const iovec* iov, void** descriptors, std::size_t count, fi_addr_t to,
              void* context) {
    return send_vector(ep, iov, descriptors, count, to, 0, 0, context);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return send_message(ep, *message, 0, 0, flags);
}
ssize_t inject_plain(fid_ep* ep, const void* buffer, std::size_t bytes, fi_addr_t to) {
    return inject(ep, buffer, bytes, to, 0, 0, 0);
}
ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t bytes, void* descriptor,
                 std::uint64_t data, fi_addr_t to, void* context) {
    return send_one(ep, buffer, bytes, descriptor, to, 0, data, FI_REMOTE_CQ_DATA, context);
}
ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t bytes, std::uint64_t data,
                   fi_addr_t to) {
    return inject(ep, buffer, bytes, to, 0, data, FI_REMOTE_CQ_DATA);
}

fi_ops_msg message_ops = {
    .size = sizeof(fi_ops_msg),
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

fi_ops_msg& message_table() noexcept { return message_ops; }

}  // namespace heddle::provider
