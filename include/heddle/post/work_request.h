// SPDX-License-Identifier: BSD-2-Clause
// Work requests and completions, the same for both posting paths. Plain values. The memory that a
// work request names must stay unchanged until it completes, or with kInline until the post
// returns.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

namespace heddle::post {

/// The operation of a work request (IBTA 9.4, 11.4.1.1). Reads and atomics cannot be inline.
enum class Opcode : std::uint8_t {
    kSend,         ///< SEND: a message that takes one of the peer's receives
    kSendImm,      ///< SEND with immediate data
    kWrite,        ///< RDMA WRITE: no receive, no completion at the peer
    kWriteImm,     ///< RDMA WRITE with immediate data, which takes one of the peer's receives
    kRead,         ///< RDMA READ
    kCompareSwap,  ///< atomic on 8 bytes: the old value comes back
    kFetchAdd,     ///< atomic on 8 bytes: the old value comes back
    /// Sends nothing: its completion says that all earlier requests of the queue have completed. On
    /// the direct path it needs no peer; libibverbs has none, so there it is an empty RDMA WRITE.
    kNop,
};

/// Bits of WorkRequest::flags.
enum Flags : std::uint8_t {
    kSignaled = 1,  ///< a completion for this request, which also covers all earlier ones of the QP
    kSolicited = 2,  ///< the receiver's completion wakes a thread that waits for solicited ones
    kInline = 4,     ///< the payload is copied into the send queue when the request is posted
    kFence = 8,      ///< starts only after all earlier reads and atomics have completed
};

/// One operation for a send queue.
///
///     ibv_sge sge{reinterpret_cast<std::uintptr_t>(data), 8, mr->lkey};
///     heddle::post::WorkRequest request;
///     request.opcode = heddle::post::Opcode::kWrite;
///     request.flags = heddle::post::kInline | heddle::post::kSignaled;
///     request.sges = {&sge, 1};
///     request.remote_address = peer_address;
///     request.remote_key = peer_rkey;
///     request.id = 7;
struct WorkRequest {
    Opcode opcode = Opcode::kSend;  ///< what it does
    std::uint8_t flags = 0;         ///< bits of Flags
    /// Local memory: the source of a send or write, the destination of a read or atomic (8 bytes).
    std::span<const ibv_sge> sges;
    std::uint64_t remote_address = 0;  ///< the peer's virtual address: RDMA and atomics
    std::uint32_t remote_key = 0;      ///< the peer's rkey: RDMA and atomics
    std::uint32_t immediate = 0;       ///< immediate data, in host order
    std::uint64_t compare_or_add =
        0;                         ///< atomics: the value to compare with, or to add; host order
    std::uint64_t swap = 0;        ///< kCompareSwap: the new value, in host order
    std::uint32_t remote_srq = 0;  ///< XRC: the number of the peer's shared receive queue
    std::uint64_t id = 0;          ///< any value; the completion has it
};

/// The end of a work request or a receive.
///
///     heddle::post::Completion done;
///     while (endpoint.poll(&done, 1) == 0) {}
///     if (done.status != IBV_WC_SUCCESS) std::puts(ibv_wc_status_str(done.status));
struct Completion {
    std::uint64_t id = 0;                   ///< WorkRequest::id, or the id of the receive
    ibv_wc_status status = IBV_WC_SUCCESS;  ///< what went wrong, if anything
    std::uint32_t vendor_error = 0;         ///< the device's own code, if status is not success
    ibv_wc_opcode opcode = IBV_WC_SEND;     ///< undefined, as in verbs, if status is not success
    std::uint32_t bytes = 0;                ///< length of a received message, a read or an atomic
    std::uint32_t immediate = 0;            ///< in host order; valid if has_immediate
    bool has_immediate = false;             ///< the message has immediate data
    std::uint32_t qpn = 0;                  ///< the number of the local QP
    std::uint32_t source_qpn = 0;           ///< the number of the sender's QP, for receives
};

/// The result of a post.
enum class Posted : std::uint8_t {
    kOk,       ///< the queue has taken the request
    kFull,     ///< the queue has no room; poll completions, then try again
    kInvalid,  ///< the queue can never take this request
};

}  // namespace heddle::post
