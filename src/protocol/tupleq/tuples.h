// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint has of tuple queues (tupleq/tuple.h). Threads: the endpoint's.
#pragma once

#include "protocol/core/core.h"
#include "protocol/core/request_pool.h"
#include "protocol/tag/delivery.h"
#include "protocol/tag/receiver.h"
#include "protocol/tupleq/tuple_device.h"
#include "protocol/tupleq/tuple_receiver.h"
#include "protocol/tupleq/tuple_sender.h"

namespace heddle::protocol {

class Tuples {
public:
    // All are kept.
    Tuples(Core& core, RequestPool& requests, Receives& receives, Delivery& delivery);

    // Options ask for tuple queues, and there is what they need.
    static bool are_possible(const Core& core) noexcept;
    // Refuses a queue that a peer asks for where there are none. The rest then never comes.
    static void decline(Core& core, Peer& peer, const Message& message);

    // Messages from that size on are counted, and may come to have a queue of their tuple.
    std::size_t least_bytes() const noexcept { return least_bytes_; }
    const TupleCounts& counts() const noexcept { return counts_; }
    // There has been no queue yet, of either side, and none was asked for: progress() has nothing
    // to do, and messages below least_bytes() may go without asking.
    bool are_unused() const noexcept {
        return !device.is_made() && sender.count() == 0 && receiver.count() == 0;
    }

    // All kinds that begin with kTuple.
    void on_message(Peer& peer, const Message& message);
    void on_peer_failed(Peer& peer, int error);
    void progress();
    // Takes all completions that there are.
    void drain();
    // The endpoint is about to be closed. True: nothing goes or comes by queues any more.
    bool close_all();

    TupleDevice device;
    TupleReceiver receiver;
    TupleSender sender;

private:
    TupleCounts counts_;
    std::size_t least_bytes_;
};

}  // namespace heddle::protocol
