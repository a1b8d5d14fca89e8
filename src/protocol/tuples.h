// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint has of tuple queues.
#pragma once

#include "protocol/tuple_receiver.h"
#include "protocol/tuple_sender.h"
#include "protocol/tupleq/tuple_device.h"

namespace heddle::protocol {

struct Tuples {
    explicit Tuples(EndpointImpl& endpoint)
        : device(*endpoint.channel, endpoint.options.tuples * kTupleDepth),
          receiver(endpoint, device),
          sender(endpoint, device) {}

    void progress() {
        device.poll();
        sender.progress();
        receiver.progress();
    }

    TupleDevice device;
    TupleReceiver receiver;
    TupleSender sender;
};

}  // namespace heddle::protocol
