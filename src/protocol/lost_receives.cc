// SPDX-License-Identifier: BSD-2-Clause
// Receives that end because their peer, or the device, has failed.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <vector>

#include "protocol/tuples.h"

namespace heddle::protocol {

// Ends the receives that only the peer could have satisfied.
void EndpointImpl::fail_receives(Peer& peer) {
    fail_receives(FI_ECONNRESET,
                  [&](const PostedReceive& posted) { return posted.source == peer.number; });
}

// The device has failed. Receives that are posted later, from any source, end in tick().
void EndpointImpl::broken(int error) {
    for (std::size_t i = 0; i < peers.size(); ++i)  // there may be more meanwhile
        if (peers[i]->failed == 0) fail_peer(*peers[i], error);
    fail_receives(error, [](const PostedReceive&) { return true; });
}

// In the order of posting.
template <class Wanted>
void EndpointImpl::fail_receives(int error, const Wanted& wanted) {
    for (Matcher* const matcher : {&tagged, &untagged}) {
        std::vector<Receive*> lost;
        matcher->find_receive([&](PostedReceive& posted) {
            if (wanted(posted)) lost.push_back(static_cast<Receive*>(&posted));
            return false;
        });
        std::sort(lost.begin(), lost.end(),
                  [](const Receive* a, const Receive* b) { return a->order < b->order; });
        for (Receive* const receive : lost) {
            if (!receive->queued) continue;  // forget() let it have a message that was kept
            matcher->take(*receive);
            if (receive->waits) tuples->receiver.forget(*receive);
            end_unmatched(*receive, error);
        }
    }
}

}  // namespace heddle::protocol
