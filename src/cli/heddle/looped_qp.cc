// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/looped_qp.h"

#include <poll.h>

#include <cerrno>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/connection.h"

namespace heddle::cli {
namespace {

constexpr std::uint32_t kDepth = 32;

}  // namespace

LoopedQp::LoopedQp(CheckedDevice& device) : device_(device) {
    channel_.reset(ibv_create_comp_channel(device.context()));
    if (!channel_) throw VerbsError("a completion channel", errno);
    cq_.reset(ibv_create_cq(device.context(), 64, nullptr, channel_.get(), 0));
    receive_cq_.reset(ibv_create_cq(device.context(), 64, nullptr, nullptr, 0));
    if (!cq_ || !receive_cq_) throw VerbsError("a completion queue", errno);
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = cq_.get();
    wanted.recv_cq = receive_cq_.get();
    wanted.cap = {.max_send_wr = kDepth,
                  .max_recv_wr = kDepth,
                  .max_send_sge = kMaxSges,
                  .max_recv_sge = 1,
                  .max_inline_data = 128};
    qp_.reset(ibv_create_qp(device.pd(), &wanted));
    if (!qp_) throw VerbsError("a queue pair", errno);
    HEDDLE_ASSERT(wanted.cap.max_send_wr >= kDepth && wanted.cap.max_send_sge >= kMaxSges,
                  "a QP has at least what was asked for");
    max_inline = wanted.cap.max_inline_data;
    const verbs::LocalPort port = verbs::local_port(device.context(), device.info.port);
    verbs::connect(qp_.get(), verbs::address_of(qp_.get(), port), port);
    if (!device.info.atomics) return;
    ibv_qp_attr allowed{};
    allowed.qp_state = IBV_QPS_RTS;
    allowed.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    if (const int error = ibv_modify_qp(qp_.get(), &allowed, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS))
        throw VerbsError("allowing atomics on a queue pair", error);
}

LoopedQp::~LoopedQp() {
    if (events_ != 0) ibv_ack_cq_events(cq_.get(), events_);
}

void LoopedQp::write(std::size_t from, std::size_t to, std::uint32_t bytes) {
    HEDDLE_ASSERT(from + bytes <= to || to + bytes <= from, "the source is not overwritten");
    ibv_sge piece = device_.piece(from, bytes);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = device_.address(to);
    wr.wr.rdma.rkey = device_.key();
    if (const int error = ibv_post_send(qp_.get(), &wr, &bad))
        throw VerbsError("an RDMA write", error);
}

void LoopedQp::wait(ibv_cq* cq) const {
    HEDDLE_ASSERT(cq == cq_.get() || cq == receive_cq_.get(), "another QP's completion");
    const auto end = std::chrono::steady_clock::now() + kCompletionPatience;
    ibv_wc done{};
    int found;
    while ((found = ibv_poll_cq(cq, 1, &done)) == 0)
        if (std::chrono::steady_clock::now() > end) throw VerbsError("a completion", ETIMEDOUT);
    if (found < 0 || done.status != IBV_WC_SUCCESS)
        throw VerbsError(std::string("a completion: ") + ibv_wc_status_str(done.status), EIO);
}

bool LoopedQp::event(int milliseconds) {
    pollfd fd{channel_->fd, POLLIN, 0};
    if (::poll(&fd, 1, milliseconds) <= 0) return false;
    ibv_cq* of = nullptr;
    void* unused = nullptr;
    if (ibv_get_cq_event(channel_.get(), &of, &unused) != 0) return false;
    HEDDLE_ASSERT(of == cq_.get(), "only this CQ has a channel");
    ++events_;
    return true;
}

void need_mlx5(const CheckedDevice& device) {
    if (!device.info.mlx5) throw VerbsError(device.info.name + " is not an mlx5 device", ENODEV);
}

}  // namespace heddle::cli
