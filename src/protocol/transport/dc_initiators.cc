// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/dc_initiators.h"

#include <endian.h>

#include <cerrno>
#include <string>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/verbs_queue.h"

namespace heddle::protocol {
namespace {

using post::Opcode;
// Header, data and a ring's tail, behind the ticket.
constexpr std::size_t kMostSges = 4;

bool is_send(Opcode opcode) noexcept {
    return opcode == Opcode::kSend || opcode == Opcode::kSendImm;
}

// False: there is no such operation by DC here.
bool begin(ibv_qp_ex* qp, const post::WorkRequest& work) noexcept {
    switch (work.opcode) {
        case Opcode::kSend:
            ibv_wr_send(qp);
            return true;
        case Opcode::kSendImm:
            ibv_wr_send_imm(qp, htobe32(work.immediate));
            return true;
        case Opcode::kWrite:
        case Opcode::kNop:
            ibv_wr_rdma_write(qp, work.remote_key, work.remote_address);
            return true;
        case Opcode::kWriteImm:
            ibv_wr_rdma_write_imm(qp, work.remote_key, work.remote_address,
                                  htobe32(work.immediate));
            return true;
        case Opcode::kRead:
            ibv_wr_rdma_read(qp, work.remote_key, work.remote_address);
            return true;
        case Opcode::kCompareSwap:
        case Opcode::kFetchAdd:
            break;
    }
    return false;
}

}  // namespace

DcInitiator::DcInitiator(verbs::QueuePair qp)
    : qp_(std::move(qp)),
      extended_(ibv_qp_to_qp_ex(qp_.get())),
      driver_(mlx5dv_qp_ex_from_ibv_qp_ex(extended_)) {}

post::Posted DcInitiator::post(const DcTarget& target, const post::WorkRequest& work) noexcept {
    std::array<ibv_sge, kMostSges> sges;
    std::size_t count = 0;
    if (is_send(work.opcode)) sges[count++] = target.ticket;
    if (work.sges.size() > sges.size() - count) return post::Posted::kInvalid;
    for (const ibv_sge& sge : work.sges)
        sges[count++] = sge;
    ibv_wr_start(extended_);
    extended_->wr_id = work.id;
    extended_->wr_flags = post::detail::send_flags(work.flags) & ~unsigned{IBV_SEND_INLINE};
    if (!begin(extended_, work)) {
        ibv_wr_abort(extended_);
        return post::Posted::kInvalid;
    }
    mlx5dv_wr_set_dc_addr(driver_, target.path.get(), target.number, target.key);
    if (work.flags & post::kInline) {
        std::array<ibv_data_buf, kMostSges> buffers;
        for (std::size_t i = 0; i < count; ++i)
            buffers[i] = {reinterpret_cast<void*>(sges[i].addr), sges[i].length};
        ibv_wr_set_inline_data_list(extended_, count, buffers.data());
    } else {
        ibv_wr_set_sge_list(extended_, count, sges.data());
    }
    const int error = ibv_wr_complete(extended_);
    return error == 0        ? post::Posted::kOk
           : error == ENOMEM ? post::Posted::kFull
                             : post::Posted::kInvalid;
}

DcInitiators::DcInitiators(std::vector<verbs::QueuePair> queue_pairs,
                           const verbs::ConnectionAttributes& attributes)
    : attributes_(attributes) {
    for (verbs::QueuePair& qp : queue_pairs) {
        HEDDLE_ASSERT(qp != nullptr);
        if (const int error = verbs::make_ready(qp.get(), attributes_))
            throw VerbsError("taking an initiator of DC to RTS", error,
                             "FI_HEDDLE_TRANSPORT=auto uses XRC or RC");
        all_.emplace_back(std::move(qp));
    }
}

bool DcInitiators::repair(DcInitiator& initiator) const noexcept {
    if (verbs::make_ready(initiator.qp(), attributes_) != 0) return false;
    initiator.is_broken = false;
    return true;
}

}  // namespace heddle::protocol
