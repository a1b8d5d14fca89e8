// SPDX-License-Identifier: BSD-2-Clause
// RMA: see rma.h. Small writes go inline.
#include "protocol/rma/rma.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "protocol/wire/message_writer.h"

namespace heddle::protocol {

ssize_t Rma::post(const RmaArguments& a) {
    if (a.iov_count > kMaxSegments || a.remote_count > kMaxSegments) return -FI_EINVAL;
    Peer* const peer = core_.peers.at(a.to);
    if (peer == nullptr) return -FI_EINVAL;
    std::size_t bytes = 0, remote_bytes = 0;
    for (std::size_t i = 0; i < a.iov_count; ++i)
        bytes += a.iov[i].iov_len;
    for (std::size_t i = 0; i < a.remote_count; ++i)
        remote_bytes += a.remote[i].bytes;
    if (bytes != remote_bytes) return -FI_EINVAL;
    const bool read = a.flags & FI_READ;
    HEDDLE_DEBUG_ASSERT(read != ((a.flags & FI_WRITE) != 0), "RMA goes one way");
    if (a.flags & FI_INJECT && bytes > core_.options.inject_bytes) return -FI_EMSGSIZE;
    Counter* const counter = read ? core_.bindings.read_counter : core_.bindings.write_counter;
    std::uint8_t what = WrContext::kRma;
    if (a.flags & FI_COMPLETION) what |= WrContext::kEntry;
    if (counter != nullptr) what |= WrContext::kCount;
    ++core_.counts.rma;

    const bool has_data = a.flags & FI_REMOTE_CQ_DATA;
    if (a.iov_count == 1 && a.remote_count == 1 && bytes != 0 &&
        bytes <= core_.options.eager_bytes && !has_data && CoreServices::can_send(*peer)) {
        const post::Posted posted = post_at_once(*peer, a, what);
        if (posted == post::Posted::kOk) return 0;
        if (posted == post::Posted::kInvalid) return -FI_EINVAL;
    }
    if (peer->failed != 0 && a.flags & FI_INJECT) return -peer->failed;
    SendRequest& t = requests_.take(*peer, *this);
    t.flags = (a.flags & ~(FI_SEND | FI_TAGGED)) | FI_RMA;
    t.report.context = a.context;
    t.data = a.data;
    t.bytes = bytes;
    t.report.what = what;
    t.report.read = read;
    t.report.counter = counter;
    t.set_buffers(a.iov, a.iov_count, a.descriptors);
    if (a.flags & FI_INJECT) t.copy_buffers();
    HEDDLE_ASSERT(t.bulk.remote_count == 0, "a request from the pool is new");
    for (std::size_t i = 0; i < a.remote_count; ++i)
        if (a.remote[i].bytes != 0)
            t.bulk.remote[t.bulk.remote_count++] = {{a.remote[i].address, a.remote[i].bytes,
                                                     static_cast<std::uint32_t>(a.remote[i].key),
                                                     0}};
    requests_.start(t);
    return 0;
}

// Little data by one work: inline; from or to where it stands, if that is registered; through a
// buffer of ours. To register memory costs more than to copy so much of it.
post::Posted Rma::post_at_once(Peer& peer, const RmaArguments& a, std::uint8_t what) {
    const bool read = a.flags & FI_READ;
    HEDDLE_DEBUG_ASSERT(a.iov_count == 1 && a.remote_count == 1, "one WR has one segment");
    const iovec& user = *a.iov;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(user.iov_base),
                static_cast<std::uint32_t>(user.iov_len), 0};
    post::WorkRequest work;
    work.opcode = read ? post::Opcode::kRead : post::Opcode::kWrite;
    work.sges = {&sge, 1};
    work.remote_address = a.remote->address;
    work.remote_key = static_cast<std::uint32_t>(a.remote->key);
    work.remote_srq = peer.name.srqn;
    WrContext sent;
    if (!read && user.iov_len <= std::min(core_.options.inline_bytes, limits_.max_inline)) {
        work.flags = post::kInline;
        if (what & (WrContext::kEntry | WrContext::kCount)) {
            sent.context = a.context;
            sent.what = what;
        }
        const post::Posted posted = core_.post(peer, work, sent);
        if (posted == post::Posted::kOk) peer.has_writes = true;
        return posted;
    }
    // What is injected is the application's again when this returns.
    const bool may_stay = !(a.flags & FI_INJECT);
    const auto* const own =
        may_stay && a.descriptors != nullptr
            ? static_cast<const RegionHandle*>(static_cast<const fid_mr*>(a.descriptors[0]))
            : nullptr;
    Reuse::Buffer* const reused = own != nullptr || !may_stay ? nullptr
                                  : read ? reuse_.destination(user, ReuseCosts::kOneSided)
                                         : reuse_.source(user, ReuseCosts::kOneSided);
    std::byte* copied = nullptr;
    if (own != nullptr) {
        sge.lkey = own->local_key;
    } else if (reused != nullptr) {
        sge.lkey = reused->key();
    } else {
        memory::Pool& buffers = requests_.send_buffers();
        HEDDLE_DEBUG_ASSERT(user.iov_len <= buffers.bytes(), "a buffer holds an eager message");
        copied = buffers.take();
        if (copied == nullptr) return post::Posted::kFull;
        if (!read) common::copy_payload(copied, user.iov_base, user.iov_len);
        sge.addr = reinterpret_cast<std::uintptr_t>(copied);
        sge.lkey = buffers.key();
    }
    ZcopyRequest& direct = requests_.take_zcopy(
        what, a.context, read ? core_.bindings.read_counter : core_.bindings.write_counter);
    direct.reused = reused;
    direct.copy_from = read ? copied : nullptr;
    direct.copy_to = user.iov_base;
    direct.bytes = user.iov_len;
    direct.read = read;
    sent.handler = &direct;
    sent.buffer = read ? nullptr : copied;
    const post::Posted posted = core_.post(peer, work, sent);
    if (posted != post::Posted::kOk) {
        requests_.give_back(direct);
        if (copied != nullptr) requests_.send_buffers().give_back(copied);
        return posted;
    }
    if (!read) peer.has_writes = true;
    if (reused != nullptr) ++reused->in_flight;
    ++(copied != nullptr ? core_.counts.rma_copied : core_.counts.rma_direct);
    return posted;
}

// False: no room.
bool Rma::start(SendRequest& t) {
    HEDDLE_ASSERT(t.step == SendRequest::Step::kMessage, "the WRs of a request are posted once");
    if (!core_.use_memory(t.bulk.local, t.iov.data(), t.iov_count, t.descriptors.data(), t.bytes,
                          t.report.read ? IBV_ACCESS_LOCAL_WRITE : 0) &&
        !copy_instead(core_, t.bulk.local, t.iov.data(), t.iov_count, t.bytes)) {
        requests_.finish(t, errno, 0);
        return true;
    }
    t.step = SendRequest::Step::kBulk;
    if (!t.report.read) t.peer->has_writes = true;
    core_.begin_bulk(
        t.bulk, *t.peer, t.report.read ? post::Opcode::kRead : post::Opcode::kWrite, {0, t.bytes},
        [](void* argument, int error, int device_error) {
            auto& request = *static_cast<SendRequest*>(argument);
            static_cast<Rma*>(request.owner)->moved(request, error, device_error);
        },
        &t);
    return t.bulk.post();
}

void Rma::moved(SendRequest& t, int error, int device_error) {
    HEDDLE_ASSERT(t.step == SendRequest::Step::kBulk, "a request ends once");
    // The target hears of the data after all bytes are there: they are.
    if (error == 0 && t.flags & FI_REMOTE_CQ_DATA) {
        const Header header{
            Kind::kData, Header::kWideData, core_.name.endpoint, t.peer->name.endpoint, 0, 0};
        const DataBody body{t.bytes};
        std::vector<std::byte> message(sizeof header + sizeof t.data + sizeof body);
        MessageWriter(message, header).add(t.data).add(body);
        core_.control_message(*t.peer, std::move(message));
    }
    requests_.finish(t, error, device_error);
}

}  // namespace heddle::protocol
