// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/tupleq/tuple.h"

namespace heddle::protocol {

const char* text_of(TupleReason reason) noexcept {
    switch (reason) {
        case TupleReason::kNone:
            return "none";
        case TupleReason::kMask:
            return "ignored bits of tags not yet known";
        case TupleReason::kManyBits:
            return "too many ignored bits in tags";
        case TupleReason::kWildcard:
            return "wildcards or probes";
        case TupleReason::kReceive:
            return "receives that the device cannot take";
        case TupleReason::kCancel:
            return "cancelled receives";
        case TupleReason::kLimit:
            return "the limit of tuple queues";
        case TupleReason::kDevice:
            return "no more queues of the device";
        case TupleReason::kLate:
            return "receives posted late";
        case TupleReason::kTruncation:
            return "messages longer than their receives";
        case TupleReason::kOtherMessage:
            return "messages that do not fit the tuple";
        case TupleReason::kClosing:
            return "the endpoint's end";
        case TupleReason::kSmall:
            return "messages mostly as short as eager ones";
        case TupleReason::kOther:
        case TupleReason::kCount:
            break;
    }
    return "other reasons";
}

TupleCounts& TupleCounts::operator+=(const TupleCounts& other) noexcept {
    asked += other.asked;
    opened += other.opened;
    sent += other.sent;
    blocking += other.blocking;
    held += other.held;
    copied += other.copied;
    again += other.again;
    received += other.received;
    posted += other.posted;
    queues += other.queues;
    queues_peak += other.queues_peak;
    for (std::size_t i = 0; i < declined.size(); ++i) {
        declined[i] += other.declined[i];
        ended[i] += other.ended[i];
    }
    return *this;
}

}  // namespace heddle::protocol
