// SPDX-License-Identifier: BSD-2-Clause
// Channel::post for those who know, where it is compiled, what they post: the entry is then built
// without asking (post/mlx5_send_queue.h).
#pragma once

#include "protocol/channel.h"

namespace heddle::protocol {

// Is there room for one more, here and in the CQ?
[[gnu::always_inline]] inline bool Channel::has_room(Connection& connection) noexcept {
    const std::uint32_t under_way = connection.posted_ - connection.done_;
    if (under_way >= options_.send_depth || signaled_ >= signaled_most_) [[unlikely]]
        return false;
    return under_way != connection.sent_.size() || connection.make_room();
}

// Is it to be told of? The last of many is, so that the others are known to be done.
[[gnu::always_inline]] inline bool Channel::is_signaled(const Connection& connection,
                                                        const Sent& sent) noexcept {
    return sent.needs_completion() || connection.unsignaled_ + 1 >= kSignalEvery;
}

// It was posted.
[[gnu::always_inline]] inline void Channel::note(Connection& connection, const Sent& sent,
                                                 bool signal) noexcept {
    Connection::Record& record =
        connection.sent_[connection.posted_ & (connection.sent_.size() - 1)];
    record.buffer =
        sent.buffer != nullptr ? send_buffers_.index_of(sent.buffer) : Connection::kNoBuffer;
    record.told = Connection::Told::kNobody;
    if (sent.user != nullptr) {
        record.user = sent.user->number_;
        record.what = sent.what;
        if (sent.part != nullptr) {
            record.argument = sent.part;
            record.told = Connection::Told::kPart;
        } else if (sent.what != 0) {
            record.argument = sent.context;
            record.told = Connection::Told::kUser;
        }
    }
    ++connection.posted_;
    connection.unsignaled_ = signal ? 0 : connection.unsignaled_ + 1;
    if (signal) ++signaled_;
}

template <bool kImmediate>
[[gnu::always_inline]] inline post::Posted Channel::post_small(
    Connection& connection, const std::byte* head, std::uint64_t tail, std::uint32_t tail_bytes,
    std::uint32_t immediate, std::uint32_t srq, const Sent& sent) noexcept {
    if (!connection.direct_) return post::Posted::kInvalid;
    if (!has_room(connection)) [[unlikely]]
        return post::Posted::kFull;
    const bool signal = is_signaled(connection, sent);
    // its id is its number: see make_qp()
    const post::Posted posted = connection.direct_->post_small<kImmediate>(
        head, tail, tail_bytes, immediate, srq, signal, 0);
    if (posted == post::Posted::kOk) [[likely]]
        note(connection, sent, signal);
    return posted;
}

}  // namespace heddle::protocol
