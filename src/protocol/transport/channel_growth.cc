// SPDX-License-Identifier: BSD-2-Clause
// Send queues that grow. Most peers are sent few messages at once, so a connection begins with a
// short queue. When that is full for the first time, a QP of the full depth is connected beside it;
// once it is, nothing more is posted to the short one, and when all that was posted has ended, the
// deep one takes its place. What a peer has acknowledged stays before what is sent later, so the
// order of messages remains, whatever the QP. Between the two the peer has two targets.
#include <exception>
#include <utility>

#include "protocol/transport/channel.h"

namespace heddle::protocol {

// The connection's queue is full. If there can be no deeper one, it keeps what it has.
void Channel::grow(Connection& connection) noexcept {
    if (!connection.may_grow_ || connection.queue_.depth == options_.send_depth) return;
    connection.may_grow_ = false;  // it is asked for once
    Connection::Queue& deeper = connection.deeper_;
    try {
        growing_.reserve(growing_.size() + 1);
        const ConnectionRequest& known = *connection.queue_.request;
        deeper = make_queue(known.from, known.to, options_.send_depth);
        deeper.request->is_spare = true;
        connector_->connect(*deeper.request);
    } catch (const std::exception&) {
        deeper = {};
        return;
    }
    growing_.push_back(&connection);
}

// False: a deeper queue is connected, and has to wait until the WRs of the other have ended.
bool Channel::take_deeper(Connection& connection) noexcept {
    Connection::Queue& deeper = connection.deeper_;
    if (!deeper.request ||
        deeper.request->state.load(std::memory_order_acquire) != ConnectionRequest::kConnected)
        return true;
    give_back_room(connection);
    if (!connection.idle()) {
        if (connection.unsignaled() != 0) signal_behind(connection);
        return false;
    }
    if (connection.direct_) direct_cq_->remove(*connection.direct_);
    try {
        post_by(connection, deeper);
    } catch (const std::exception&) {
        return false;  // there is no memory now, and it is tried again before the next WR
    }
    connector_->abandon(*connection.queue_.request);
    connection.queue_ = std::exchange(deeper, {});
    std::erase(growing_, &connection);
    return true;
}

void Channel::drop_deeper(Connection& connection) noexcept {
    if (!connection.deeper_.request) return;
    connector_->disconnect(*connection.deeper_.request);
    connection.deeper_ = {};
    std::erase(growing_, &connection);
}

// When the state of one has changed, or WRs have ended: there may be none behind them.
void Channel::look_at_growing() noexcept {
    // From the end: each may go from the list.
    for (std::size_t i = growing_.size(); i-- > 0;) {
        Connection& connection = *growing_[i];
        const auto state = connection.deeper_.request->state.load(std::memory_order_acquire);
        if (state == ConnectionRequest::kFailed)
            drop_deeper(connection);
        else
            take_deeper(connection);
    }
}

}  // namespace heddle::protocol
