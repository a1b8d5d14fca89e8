// SPDX-License-Identifier: BSD-2-Clause
// The responder: finds the QP at the other end, checks what IBTA 9.6-9.8 has it check, moves the
// payload and prepares the receiver's completion. Runs in the requester's process.
#include "softhca/engine/responder.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/uio.h>

#include "softhca/base/log.h"
#include "softhca/base/tsan.h"
#include "softhca/device/identity.h"
#include "softhca/device/memory/remote.h"
#include "softhca/device/port.h"
#include "softhca/engine/packets.h"
#include "softhca/engine/qp_error.h"

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::kNone;
using device::QueuePair;
namespace memory = device::memory;

namespace {

constexpr std::size_t kGrhBytes = 40;

bool is_send(const Request& request) noexcept {
    return request.opcode == MLX5_OPCODE_SEND || request.opcode == MLX5_OPCODE_SEND_IMM;
}
bool is_atomic(const Request& request) noexcept {
    return request.opcode == MLX5_OPCODE_ATOMIC_CS || request.opcode == MLX5_OPCODE_ATOMIC_FA;
}
bool has_immediate(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}
Message message_of(const Request& request) noexcept {
    return {request.opcode,        request.control, request.data.bytes, request.immediate,
            request.service_level, request.has_grh, request.source_lid};
}

std::uint32_t partner_type(std::uint32_t type) noexcept {
    return type == IB_UVERBS_QPT_XRC_INI ? std::uint32_t{IB_UVERBS_QPT_XRC_TGT} : type;
}

bool reliable(std::uint32_t type) noexcept {
    return type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI;
}

// How many packet sequence numbers a message takes (IBTA 9.7.2).
std::uint32_t packets(const QueuePair& requester, std::size_t bytes) noexcept {
    return bytes ? static_cast<std::uint32_t>((bytes - 1) >> mtu_shift(requester)) + 1 : 1;
}

}  // namespace

QueuePair* find_target(Fabric& fabric, const QueuePair& requester,
                       const Request& request) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    const std::uint32_t number = datagram ? request.qpn : requester.attr.dest_qpn;
    if ((datagram ? request.dlid : requester.attr.dlid) != device::kLid) return nullptr;
    QueuePair* target = find_receiver(fabric, number, partner_type(requester.type));
    if (!target) return nullptr;
    if (datagram) {
        // a Q_Key with the high bit set stands for the sender's own (IBTA 10.2.5)
        const std::uint32_t qkey = request.qkey & 0x80000000u ? requester.attr.qkey : request.qkey;
        return qkey == target->attr.qkey ? target : nullptr;
    }
    return expects(*target, requester, reliable(requester.type)) ? target : nullptr;
}

void fill_receive_completion(const QueuePair& requester, const QueuePair& target,
                             const Message& message, const Receive& receive,
                             Completion& completion) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    clear(completion);
    completion.opcode = message.opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? MLX5_CQE_RESP_WR_IMM
                        : message.opcode == MLX5_OPCODE_SEND_IMM     ? MLX5_CQE_RESP_SEND_IMM
                                                                     : MLX5_CQE_RESP_SEND;
    completion.solicited = (message.control & MLX5_WQE_CTRL_SOLICITED) != 0;
    completion.cqe.srqn_uidx = htobe32(receive.uidx);
    if (has_immediate(message.opcode)) completion.cqe.imm_inval_pkey = message.immediate;
    completion.cqe.byte_cnt =
        htobe32(static_cast<std::uint32_t>(message.bytes + (datagram ? kGrhBytes : 0)));
    completion.cqe.sop_drop_qpn = htobe32(target.number);
    completion.cqe.flags_rqpn =
        htobe32(requester.number | (datagram ? std::uint32_t{message.service_level} << 24 : 0) |
                (datagram && message.has_grh ? 1u << 28 : 0));
    // slid, with the two bytes before it: see store_entry in completion.cc
    const std::uint32_t slid = htobe32(message.source_lid);
    memcpy(reinterpret_cast<std::byte*>(&completion.cqe) + offsetof(mlx5_cqe64, slid) - 2, &slid,
           4);
    completion.cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(receive.counter));
}

void acknowledge(QueuePair& requester, QueuePair& target, std::size_t bytes) noexcept {
    const std::uint32_t n = packets(requester, bytes);
    requester.requester_psn += n;
    target.responder_psn += n;
}

namespace {

void nak(Fabric& fabric, QueuePair& target, Response& response, std::uint8_t syndrome,
         std::uint32_t event) noexcept {
    response.answer = Answer::kError;
    response.syndrome = syndrome;
    response.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
    response.responder_failed = true;
    response.event = event;
}

void local_error(Response& response, std::uint8_t syndrome) noexcept {
    response.answer = Answer::kError;
    response.syndrome = syndrome;
    response.local_error = true;
}

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::uint8_t kUdp = 17, kIbGlobal = 0x1b;         // next header, or protocol
constexpr std::uint16_t kUdpAndTransport = 8 + 12 + 8 + 4;  // UDP, BTH, DETH, ICRC

// IBTA annex A17.4.5.2: of RoCE v2 over IPv4 the receiver finds the header in the last 20 of the 40
// bytes. Programs tell it by its checksum (RFC 791), so it must be right.
void build_ipv4(const device::Port& port, const Request& request, std::byte* header) noexcept {
    header[0] = std::byte{0x45};
    header[1] = static_cast<std::byte>(request.traffic_class);
    const auto length =
        htobe16(static_cast<std::uint16_t>(kIpv4Bytes + kUdpAndTransport + request.data.bytes));
    memcpy(header + 2, &length, 2);
    header[6] = std::byte{0x40};  // not to be fragmented
    header[8] = static_cast<std::byte>(request.hop_limit);
    header[9] = std::byte{kUdp};
    std::uint8_t source[16];
    port.gid(request.sgid_index).copy_to(source);
    memcpy(header + 12, source + 12, 4);
    memcpy(header + 16, request.dgid + 12, 4);
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < kIpv4Bytes; i += 2) {
        std::uint16_t word;
        memcpy(&word, header + i, 2);
        sum += word;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    const auto checksum = static_cast<std::uint16_t>(~(sum + (sum >> 16)));
    memcpy(header + 10, &checksum, 2);
}

// IBTA 8.3: the global route header that a receiver of datagrams finds before the payload. On an
// Ethernet port it is the header of RoCE v1, or the IP header of v2.
void build_grh(Fabric& fabric, const Request& request, std::byte* grh) noexcept {
    memset(grh, 0, kGrhBytes);
    const device::Port port = device::port_of(fabric.segment());
    if (port.is_ethernet() && request.service_level == kRoceV2OverIpv4)
        return build_ipv4(port, request, grh + kGrhBytes - kIpv4Bytes);
    const bool over_udp = port.is_ethernet() && request.service_level == kRoceV2OverIpv6;
    const std::uint32_t word =
        htobe32(0x6000'0000u | std::uint32_t{request.traffic_class} << 20 | request.flow_label);
    memcpy(grh, &word, 4);
    const auto length = htobe16(static_cast<std::uint16_t>(((request.data.bytes + 3) & ~3u) + 24));
    memcpy(grh + 4, &length, 2);
    grh[6] = std::byte{over_udp ? kUdp : kIbGlobal};
    grh[7] = static_cast<std::byte>(request.hop_limit);
    // An entry of an InfiniBand port that is empty stands for the port's own GID.
    const device::GidEntry source = port.gid(port.is_ethernet() ? request.sgid_index : 0);
    source.copy_to(reinterpret_cast<std::uint8_t*>(grh + 8));
    memcpy(grh + 24, request.dgid, 16);
}

// The receiver's side of a failed receive: its completion says `syndrome`, the requester's
// `answer`.
void receive_failed(Fabric& fabric, QueuePair& target, const Receive& receive, Response& response,
                    std::uint8_t syndrome, std::uint8_t answer) noexcept {
    Completion& completion = *response.completion;
    clear(completion);
    set_error(completion, MLX5_CQE_RESP_ERR, syndrome);
    completion.cqe.srqn_uidx = htobe32(receive.uidx);
    completion.cqe.sop_drop_qpn = htobe32(target.number);
    completion.cqe.wqe_counter = htobe16(static_cast<std::uint16_t>(receive.counter));
    response.has_completion = true;
    response.completion_cq = receive.cq;
    nak(fabric, target, response, answer, kNoEvent);
}

// The payload of a message that goes to a receive queue; the receive has been taken.
void deliver(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
             const Receive& receive, Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    const std::size_t bytes = request.data.bytes;
    SpanList list;
    if (const std::uint8_t syndrome =
            scatter_list(fabric, receive, datagram ? kGrhBytes : 0, bytes, list)) {
        receive_failed(fabric, target, receive, response, syndrome,
                       syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR
                           ? MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR
                           : MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        return;
    }
    fill_receive_completion(requester, target, message_of(request), receive, *response.completion);
    response.has_completion = true;
    response.completion_cq = receive.cq;
    Moved moved = Moved::kOk;
    if (bytes && bytes <= in_entry(target.scatter_recv)) {
        SpanList inside;
        inside.process = fabric.slot();
        inside.add(response.completion->payload, 0, bytes);
        moved = move(fabric, request.data, inside);
        response.completion->inline_length = static_cast<std::uint8_t>(bytes);
    } else {
        if (datagram && request.has_grh) {
            std::byte grh[kGrhBytes];
            build_grh(fabric, request, grh);
            SpanList header, place;
            header.process = fabric.slot();
            header.add(grh, 0, kGrhBytes);
            if (scatter_list(fabric, receive, 0, kGrhBytes, place) == 0)
                move(fabric, header, place);
        }
        if (bytes) {
            // Another thread of the engine may have delivered to the same memory before: the
            // program has posted it again since.
            tsan_acquire(list.spans[0].pointer);
            moved = move_payload(fabric, requester, request.data, list);
            tsan_release(list.spans[0].pointer);
        }
        count(target.receive.dma_write_payload, list.count);
    }
    switch (moved) {
        case Moved::kOk:
            return;
        case Moved::kSourceFault:  // the sender's own memory is not there; the receive is lost with
                                   // it
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
                           MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
            response.local_error = true;
            return;
        case Moved::kTargetFault:
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
            return;
        case Moved::kRefused:
            receive_failed(fabric, target, receive, response, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
            return;
        case Moved::kGone:
            response.answer = Answer::kSilent;
            response.has_completion = false;
            return;
    }
}

// The receive that a message takes; or false, and the answer it gets.
bool take_for(Fabric& fabric, const QueuePair& requester, QueuePair& target, const Request& request,
              Receive& receive, Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    switch (take_receive(fabric, target, request.srq_number, datagram, receive)) {
        case Take::kOk:
            if (datagram) return true;
            if (receive.srq != kNone) {
                if (!by_packets()) return true;  // it is delivered as soon as it is taken
                mark_in_flight(fabric, target, receive.counter, receive.srq);
            }
            // marked in flight
            response.target = static_cast<std::uint32_t>(&target - fabric.segment().qps.items);
            return true;
        case Take::kBusy:
            response.answer = Answer::kBusy;
            return false;
        case Take::kEmpty:
            response.answer = reliable(requester.type) ? Answer::kRnr : Answer::kNoReceive;
            response.rnr_timer = target.attr.min_rnr_timer;
            return false;
        case Take::kBroken:
            break;
    }
    if (datagram)
        response.answer = Answer::kSilent;
    else
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_EVENT_QP_FATAL);
    return false;
}

void send(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
          Response& response) noexcept {
    const bool datagram = requester.type == IB_UVERBS_QPT_UD;
    Receive receive;
    if (!take_for(fabric, requester, target, request, receive, response)) return;
    deliver(fabric, requester, target, request, receive, response);
    if (!datagram) return;
    if (response.local_error) {  // the sender's own fault: nothing would have been sent
        return_receive(fabric, target, receive);
        response.has_completion = response.responder_failed = false;
        response.target = kNone;
        return;
    }
    // Senders to one datagram QP complete in the order in which they took, so its queue is still
    // locked; and nobody waits here for the lock of its CQ.
    if (put_completion(fabric, receive.cq, *response.completion, false) == Put::kBusy) {
        return_receive(fabric, target, receive);
        Completion* completion = response.completion;
        response = Response{};
        response.answer = Answer::kBusy;
        response.completion = completion;
        return;
    }
    response.has_completion = false;
    release_receive(receive);
}

std::uint32_t needed_right(const Request& request) noexcept {
    if (request.opcode == MLX5_OPCODE_RDMA_READ) return IBV_ACCESS_REMOTE_READ;
    if (is_atomic(request)) return IBV_ACCESS_REMOTE_ATOMIC;
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

// EFAULT: not on eight bytes in a row of a word. The request's address is (rdma()), but a damaged
// record can say that it lies elsewhere.
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

// Where the answer of a READ or atomic goes: the requester's CQE or its memory.
Moved answer(Fabric& fabric, QueuePair& requester, const Request& request, const SpanList& from,
             std::size_t bytes, Response& response) noexcept {
    if (request.signalled() && bytes && bytes <= in_entry(requester.scatter_send)) {
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
    std::uint64_t old = 0;
    const bool shared = remote.count == 1 && remote.spans[0].pointer;
    if (const int error = shared ? atomic_on_shared(remote.spans[0].pointer, request, &old)
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

void rdma(Fabric& fabric, QueuePair& requester, QueuePair& target, Request& request,
          Response& response) noexcept {
    const std::uint32_t right = needed_right(request);
    const bool reads = request.opcode == MLX5_OPCODE_RDMA_READ || is_atomic(request);
    // IBTA 9.7.4.1.6: an operation that the QP does not take is an invalid request
    if (!(target.attr.qp_access_flags & right) || (reads && !target.attr.max_dest_rd_atomic) ||
        (is_atomic(request) && (request.remote_address & 7))) {
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    std::uint32_t pd = target.pd;
    if (target.type == IB_UVERBS_QPT_XRC_TGT) {
        // annex A14: the protection domain is that of the SRQ named in the packet
        const auto* srq = xrc_queue(fabric, target, request.srq_number);
        if (!srq) {
            nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
                IBV_EVENT_QP_REQ_ERR);
            return;
        }
        pd = srq->pd;
    }
    const std::size_t bytes = is_atomic(request) ? 8 : request.data.bytes;
    SpanList remote;
    if (bytes && resolve(fabric, request.remote_key, pd, request.remote_address, bytes, right,
                         remote) != Access::kOk) {
        nak(fabric, target, response, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    if (is_atomic(request)) {
        atomic(fabric, requester, target, request, remote, response);
        return;
    }
    if (request.opcode == MLX5_OPCODE_RDMA_READ) {
        count(target.receive.dma_read_payload, remote.count);
        from_moved(fabric, target, response,
                   answer(fabric, requester, request, remote, bytes, response), true);
        return;
    }
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

// Whose memory the request was to reach, if it is the target's.
bool responder_is_going(Fabric& fabric, const QueuePair& target, const Request& request) noexcept {
    if (!target.head.live()) return true;
    const std::uint32_t owner = target.head.owner();  // none: an XRC target whose maker is gone
    if (owner != kNone && fabric.going(owner)) return true;
    const auto* srq = is_send(request) || request.opcode == MLX5_OPCODE_RDMA_WRITE_IMM
                          ? shared_queue(fabric, target, request.srq_number)
                          : nullptr;
    return srq && srq->head.owner() != owner && fabric.going(srq->head.owner());
}

}  // namespace

void respond(Fabric& fabric, QueuePair& requester, Request& request, Response& response) noexcept {
    QueuePair* target = find_target(fabric, requester, request);
    if (!target) {
        response.answer = Answer::kSilent;
        return;
    }
    if (is_send(request))
        send(fabric, requester, *target, request, response);
    else
        rdma(fabric, requester, *target, request, response);
    // What failed because the other process ends is not an error of the request: the queue pair is
    // about to go with it, and a wire is silent from then on.
    if (response.answer == Answer::kError && !response.local_error &&
        responder_is_going(fabric, *target, request)) {
        response.answer = Answer::kSilent;
        response.has_completion = response.responder_failed = false;
        response.event = kNoEvent;
    }
    // a responder that does not acknowledge has no way to refuse either (IBTA 9.8.2.2)
    if (!reliable(requester.type) && response.answer == Answer::kError && !response.local_error &&
        !response.has_completion && response.responder_failed) {
        response.answer = Answer::kSilent;
        response.responder_failed = false;
        response.target = kNone;
    }
    if (reliable(requester.type) && response.answer == Answer::kDone)
        acknowledge(requester, *target, request.data.bytes);
}

}  // namespace softhca::engine
