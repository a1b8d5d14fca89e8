// SPDX-License-Identifier: BSD-2-Clause
// Room for WRs: places in the send queue of a connection, and entries of the channel's CQ. A
// connection that breaks completes each of its WRs, so each has an entry of its own.
#include <algorithm>
#include <new>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/transport/channel_limits.h"
#include "protocol/transport/channel_post.h"

namespace heddle::protocol {

// True: the send queue and the ring that remembers its WRs take one more. The ring grows up to the
// queue's depth.
bool Connection::has_place() noexcept {
    const std::uint32_t outstanding = posted_ - done_;
    HEDDLE_DEBUG_ASSERT(outstanding <= sent_mask_ + 1, "each outstanding WR has a record");
    if (outstanding >= queue_.depth) return false;
    if (outstanding > sent_mask_) {
        const std::uint32_t mask = 2 * sent_mask_ + 1;
        std::unique_ptr<Record[]> larger(new (std::nothrow) Record[mask + std::size_t{1}]);
        if (larger == nullptr) return false;
        for (std::uint32_t number = done_; number != posted_; ++number)
            larger[number & mask] = record(number);
        sent_ = std::move(larger);
        sent_mask_ = mask;
    }
    return true;
}

// Reserves CQ entries for the connection's next WRs: as many as its ring has places, but at most an
// eighth of what is left, so that each of many peers gets some. False: not one.
bool Channel::find_room(Connection& connection) noexcept {
    HEDDLE_DEBUG_ASSERT(connection.posted_ == connection.room_until_, "there is room already");
    // First, as it may post to this connection, too, and take its last place: where more
    // connections have unsignaled WRs than there are reserved entries, so that one had to wait for
    // its own.
    if (cq_room_ <= kReservedEntries) take_back_room();
    if (!take_deeper(connection)) return false;
    if (cq_room_ <= kReservedEntries) return false;
    if (!connection.has_place()) {
        grow(connection);
        return false;
    }
    if (connection.dc_ && !take_initiator(connection)) return false;
    const std::uint32_t places = std::min(connection.queue_.depth, connection.sent_mask_ + 1) -
                                 (connection.posted_ - connection.done_);
    const std::uint32_t taken = std::min(places, 1 + (cq_room_ - kReservedEntries) / 8);
    HEDDLE_DEBUG_ASSERT(taken != 0 && taken <= cq_room_ - kReservedEntries);
    connection.room_until_ += taken;
    cq_room_ -= taken;
    is_room_taken_back_ = false;
    return true;
}

// The connection asks before it posts again.
void Channel::give_back_room(Connection& connection) noexcept {
    cq_room_ += connection.room_until_ - connection.posted_;
    connection.room_until_ = connection.quiet_until_ = connection.posted_;
}

// Collects the entries that connections have reserved and do not use, and makes the end of
// unsignaled WRs known. The walk over all connections is not repeated until an entry has become
// free or was given out: until then it would find nothing.
void Channel::take_back_room() noexcept {
    if (is_room_taken_back_) return;
    is_room_taken_back_ = true;
    for (const auto& connection : connections_) {
        HEDDLE_ASSERT(connection->room_until_ - connection->posted_ <= connection->queue_.depth,
                      "a connection has posted more than it had room for");
        give_back_room(*connection);
    }
    HEDDLE_ASSERT(cq_room_ + under_way() == send_entries_,
                  "each entry of the CQ is free, or belongs to an outstanding WR");
    for (const auto& connection : connections_)
        if (connection->ready() && connection->unsignaled() != 0 && !signal_behind(*connection))
            return;
}

// If the last WRs of a connection are unsignaled, nothing says when they are done: an empty request
// behind them does. It must not need the peer, which may have left since it got the last message: a
// packet to it would be sent again and again. False: there is no room for it now.
bool Channel::signal_behind(Connection& connection) noexcept {
    if (cq_room_ == 0 || !connection.has_place()) return false;
    give_back_room(connection);
    connection.room_until_ = connection.posted_ + 1;  // the last that there is room for is signaled
    --cq_room_;
    post::WorkRequest work;
    work.opcode = post::Opcode::kNop;
    work.remote_srq = connection.to().srqn;
    return post(connection, work, {.what = WrContext::kOwn}) == post::Posted::kOk;
}

// signal: the next WR is signaled. If it cannot be posted after all, as many more than kSignalEvery
// may get no CQE; never the last that there is room for.
void Connection::find_quiet(bool signal) noexcept {
    HEDDLE_DEBUG_ASSERT(posted_ != room_until_, "there is room for the next WR");
    const std::uint32_t from = posted_ + (signal ? 1 : 0), room = room_until_ - from,
                        before = signal ? 0 : std::min(kSignalEvery - 1, unsignaled());
    quiet_until_ = from + std::min(room - std::min(room, 1U), kSignalEvery - 1 - before);
}

}  // namespace heddle::protocol
