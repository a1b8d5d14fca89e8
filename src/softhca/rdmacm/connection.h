// SPDX-License-Identifier: BSD-2-Clause
// How a connection comes and goes (IBTA volume 1, chapter 12; the kernel's cm.c and cma.c). Both
// sides' ids lie in the segment, so what would be a message of the communication manager - REQ,
// REP, RTU, REJ, DREQ, SIDR_REQ, SIDR_REP - is a change of the other side's id, and an event for
// it.
//
// All take ids that the caller has found, with the lock held. They return 0 or an errno, which is
// the kernel's for the same call.
#pragma once

#include "softhca/rdmacm/abi.h"
#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

// Events of resolving, of the end, and of the program's own (with an argument).
bool tell(Locked& connections, CmId& id, Event event, int status = 0,
          std::uint64_t argument = 0) noexcept;

int listen(Locked& connections, CmId& id, std::uint32_t backlog) noexcept;
int connect(Locked& connections, CmId& id, const rdma_ucm_conn_param& wanted,
            const rdma_ucm_ece& ece) noexcept;
// The passive side's reply, after which it knows the id by `uid`.
int accept(Locked& connections, CmId& id, std::uint64_t uid, const rdma_ucm_conn_param& wanted,
           const rdma_ucm_ece& ece) noexcept;
// The active side's confirmation of a reply.
int confirm(Locked& connections, CmId& id) noexcept;
int reject(Locked& connections, CmId& id, std::uint8_t reason, const void* data,
           std::size_t bytes) noexcept;
int disconnect(Locked& connections, CmId& id) noexcept;
// The program has seen a message before the confirmation.
int communication_established(Locked& connections, CmId& id) noexcept;

// The id goes, and its peer learns of it. Queued requests of a listener go with it.
void destroy(Locked& connections, CmId& id) noexcept;
// The peer of an id of this process is gone without a word: its process died.
void peer_lost(Locked& connections, CmId& id) noexcept;

}  // namespace softhca::rdmacm
