// SPDX-License-Identifier: BSD-2-Clause
// Before a thread sleeps until something comes by a channel.
#include "heddle/detail/assert.h"
#include "protocol/transport/channel_poll.h"

namespace heddle::protocol {

bool Channel::arm() {
    disarm();
    if (direct_cq_)
        direct_cq_->arm(false);
    else
        verbs_cq_->arm(false);
    // What came before it was armed raises no event.
    return poll() == 0 && !changed_.load(std::memory_order_acquire);
}

void Channel::disarm() {
    wait_set_.clear();
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(objects_.events(), &cq, &context) == 0) {
        HEDDLE_ASSERT(cq != nullptr, "an event names its CQ");
        if (direct_cq_ && cq == objects_.cq()) direct_cq_->event_read();
        ibv_ack_cq_events(cq, 1);
    }
}

}  // namespace heddle::protocol
