// SPDX-License-Identifier: BSD-2-Clause
// The part of the fast path that only SENDs have: see fast_path.h.
#include "softhca/engine/fast_path.h"

#include "softhca/base/tsan.h"

namespace softhca::engine {

bool fast_send(device::Fabric& fabric, LocalQp& local, const device::QueuePair& qp,
               FastPathRequest& request) noexcept {
    device::QueuePair& target = *request.target;
    Receive receive;
    std::byte* to;
    if (!take_one_sge(fabric, target, request.srq_number, request.bytes, receive, local.receive,
                      &to))
        return false;
    request.is_marked = receive.srq == device::kNone;
    request.receive_cq = receive.cq;
    const bool travels_in_entry = request.bytes <= in_entry(target.scatter_recv);
    if (!travels_in_entry) {
        tsan_acquire(to);  // as deliver() in receive_responder.cc
        store_payload(to, request.payload, request.bytes);
        tsan_release(to);
        device::count(target.receive.dma_write_payload);
    }
    Completion& completion = local.unfinished.receive;
    fill_receive_completion(qp, target,
                            {.opcode = request.opcode,
                             .control = request.control,
                             .bytes = request.bytes,
                             .immediate = request.immediate,
                             .source_lid = qp.attr.lid},
                            receive, completion);
    if (travels_in_entry) {
        SOFTHCA_DEBUG_ASSERT(request.bytes <= sizeof completion.payload,
                             "in_entry() bounds what travels in the CQE");
        copy_few(completion.payload, request.payload, request.bytes);
        completion.inline_length = static_cast<std::uint8_t>(request.bytes);
    }
    return true;
}

}  // namespace softhca::engine
