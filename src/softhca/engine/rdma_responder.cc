// SPDX-License-Identifier: BSD-2-Clause
// The responder's side of requests that name memory: RDMA READ and WRITE, and atomics.
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/uio.h>

#include <atomic>

#include "softhca/base/assert.h"
#include "softhca/device/memory/remote.h"
#include "softhca/device/peers.h"
#include "softhca/engine/mkeys.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/qp_error.h"
#include "softhca/engine/responder_parts.h"

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::QueuePair;
namespace memory = device::memory;

namespace {

std::uint32_t needed_right(const Request& request) noexcept {
    if (request.opcode == MLX5_OPCODE_RDMA_READ) return IBV_ACCESS_REMOTE_READ;
    if (is_atomic(request.opcode)) return IBV_ACCESS_REMOTE_ATOMIC;
    return IBV_ACCESS_REMOTE_WRITE;
}

void from_moved(Fabric& fabric, QueuePair& target, Response& response, Moved moved,
                bool remote_is_source) noexcept {
    switch (moved) {
        case Moved::kOk:
            return;
        case Moved::kSourceFault:
        case Moved::kTargetFault:
            if ((moved == Moved::kSourceFault) == remote_is_source)
                nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
                    IBV_EVENT_QP_ACCESS_ERR);
            else
                local_error(response, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
            return;
        case Moved::kRefused:
            nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_EVENT_QP_FATAL);
            return;
        case Moved::kGone:
            response.answer = Answer::kSilent;
            return;
    }
}

// EFAULT: the address is no multiple of eight. The request's address is one (respond_to_rdma()),
// but the region's record, which another process may have overwritten, can map it elsewhere.
int atomic_on_shared(std::byte* at, const Request& request, std::uint64_t* old) noexcept {
    if ((reinterpret_cast<std::uintptr_t>(at) & 7) != 0) return EFAULT;
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
    if (request.opcode == MLX5_OPCODE_ATOMIC_FA) {
        *old = word.fetch_add(request.swap_or_add);
    } else {
        *old = request.compare;
        word.compare_exchange_strong(*old, request.swap_or_add);
    }
    return 0;
}

// Memory that only the kernel reaches: atomic among all users of the fabric (IBV_ATOMIC_HCA).
int atomic_on_private(Fabric& fabric, const SpanList& remote, const Request& request,
                      std::uint64_t* old) noexcept {
    if (!fabric.alive(remote.process)) return ESRCH;
    pid_t pid;
    if (const int error = device::peers::verify(fabric, fabric.segment(), remote.process, &pid))
        return error;
    if (!fabric.segment().atomics_lock.try_lock_briefly()) return EBUSY;
    iovec local{old, 8};
    iovec there{reinterpret_cast<void*>(static_cast<std::uintptr_t>(remote.spans[0].address)), 8};
    int error = memory::copy_from(pid, &local, 1, &there, 1, 8);
    std::uint64_t fresh = 0;
    if (!error) {
        fresh = request.opcode == MLX5_OPCODE_ATOMIC_FA ? *old + request.swap_or_add
                : *old == request.compare               ? request.swap_or_add
                                                        : *old;
        local.iov_base = &fresh;
        error = memory::copy_to(pid, &local, 1, &there, 1, 8);
    }
    fabric.segment().atomics_lock.unlock();
    return error;
}

// Where the answer of a READ or atomic goes: the requester's CQE or its memory. Never an atomic's
// into the CQE: libmlx5 copies it from there as it is (mlx5_copy_to_send_wqe), while UCX takes it
// for big-endian there, but not in memory (uct_rc_mlx5_common_atomic64_le_handler). Both look for a
// flag of the CQE first.
Moved answer(Fabric& fabric, QueuePair& requester, const Request& request, const SpanList& from,
             std::size_t bytes, Response& response) noexcept {
    if (request.signalled() && !is_atomic(request.opcode) && bytes &&
        bytes <= in_entry(requester.scatter_send)) {
        SOFTHCA_DEBUG_ASSERT(bytes <= sizeof response.payload,
                             "in_entry() bounds what travels in the CQE");
        SpanList inside;
        inside.process = fabric.slot();
        inside.add(response.payload, 0, bytes);
        response.inline_length = static_cast<std::uint8_t>(bytes);
        return move(fabric, from, inside);
    }
    count(requester.send.dma_write_payload, request.gathers);
    return move_payload(fabric, requester, from, request.data);
}

void atomic(Fabric& fabric, QueuePair& requester, QueuePair& target, const Request& request,
            const SpanList& remote, Response& response) noexcept {
    SOFTHCA_DEBUG_ASSERT(remote.count != 0 && remote.bytes == 8, "resolve() found the operand");
    std::uint64_t old = 0;
    const bool shared = remote.spans[0].pointer != nullptr;
    // Only an indirect key can have the operand in two places.
    if (const int error = remote.count != 1 ? EFAULT
                          : shared ? atomic_on_shared(remote.spans[0].pointer, request, &old)
                                   : atomic_on_private(fabric, remote, request, &old)) {
        if (error == EBUSY) {
            response.answer = Answer::kBusy;
            return;
        }
        from_moved(fabric, target, response,
                   error == EFAULT  ? Moved::kSourceFault
                   : error == ESRCH ? Moved::kGone
                                    : Moved::kRefused,
                   true);
        return;
    }
    count(target.receive.dma_read_payload);
    count(target.receive.dma_write_payload);
    SpanList from;
    from.process = fabric.slot();
    from.add(reinterpret_cast<std::byte*>(&old), 0, 8);
    from_moved(fabric, target, response, answer(fabric, requester, request, from, 8, response),
               true);
}

}  // namespace

void respond_to_rdma(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
                     Response& response) noexcept {
    const std::uint32_t right = needed_right(request);
    const bool reads = request.opcode == MLX5_OPCODE_RDMA_READ || is_atomic(request.opcode);
    // IBTA 9.7.4.1.6: an operation that the QP does not take is an invalid request
    if (!(target.attr.qp_access_flags & right) || (reads && !target.attr.max_dest_rd_atomic) ||
        (is_atomic(request.opcode) && (request.remote_address & 7))) {
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    std::uint32_t pd;
    if (!find_domain(fabric, target, request.srq_number, &pd)) {
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    const std::size_t bytes = is_atomic(request.opcode) ? 8 : request.data.bytes;
    SpanList remote;
    if (bytes && (!may_use(fabric.segment(), request.remote_key, target.number) ||
                  !may_use_mkey(fabric.segment(), request.remote_key, target.number) ||
                  resolve(fabric, request.remote_key, pd, request.remote_address, bytes, right,
                          remote) != Access::kOk)) {
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    if (is_atomic(request.opcode)) {
        atomic(fabric, requester, target, request, remote, response);
        return;
    }
    if (request.opcode == MLX5_OPCODE_RDMA_READ) {
        count(target.receive.dma_read_payload, remote.count);
        from_moved(fabric, target, response,
                   answer(fabric, requester, request, remote, bytes, response), true);
        return;
    }
    SOFTHCA_DEBUG_ASSERT(remote.bytes == bytes, "resolve() found all bytes");
    Receive receive;
    const bool immediate = request.opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
    if (immediate && !take_for(fabric, requester, target, request, receive, response)) return;
    if (bytes) {
        from_moved(fabric, target, response, move_payload(fabric, requester, request.data, remote),
                   false);
        count(target.receive.dma_write_payload, remote.count);
    }
    if (immediate) {
        if (response.answer == Answer::kDone)
            fill_receive_completion(requester, target, message_of(request), receive,
                                    *response.completion);
        else if (response.answer == Answer::kError)
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
                           response.syndrome);
        response.has_completion = response.answer != Answer::kSilent;
        response.completion_cq = receive.cq;
    }
}

}  // namespace softhca::engine
