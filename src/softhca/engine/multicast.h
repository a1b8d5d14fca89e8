// SPDX-License-Identifier: BSD-2-Clause
// Datagrams to a multicast group: each QP that is attached to the group is the responder of a
// datagram of its own. The sender's request completes once.
//
// A member may make the sender wait: another thread has a lock of its queues, or it has posted no
// receive yet. The sender goes on with the other members, and comes back for those that are left.
// LocalQp.group_send says which, so that no member gets a datagram twice.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/device/multicast.h"
#include "softhca/engine/local.h"
#include "softhca/engine/request.h"
#include "softhca/engine/responder.h"

namespace softhca::engine {

inline bool is_multicast(const device::QueuePair& requester, const Request& request) noexcept {
    return requester.type == IB_UVERBS_QPT_UD && request.ud.qpn == device::kMulticastQp;
}

// Delivers the request to the members that are left. kBusy, kNoReceive: some still are. The caller
// holds the run lock and is inside an epoch.
void respond_as_group(device::Fabric& fabric, LocalQp& local, device::QueuePair& requester,
                      Request& request, Response& response) noexcept;

// After kNoReceive. True: the members without a receive get some time for it (retries.h). False:
// they lose the datagram, and the next ones are not held for them.
bool hold_for_group(LocalQp& local) noexcept;

}  // namespace softhca::engine
