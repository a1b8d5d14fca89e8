// SPDX-License-Identifier: BSD-2-Clause
// Channel::post for those who know, where it is compiled, what they post: the entry is then built
// without asking (post/mlx5_send_queue.h).
#pragma once

#include "heddle/detail/assert.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/channel_limits.h"

namespace heddle::protocol {

// Does the WR get a CQE? The last of many does, so that the others are known to be done; and so
// does the last that there is room for. A buffer that nobody waits for comes back with the next
// CQE of its connection. There may be none, so half of the buffers are for WRs with a CQE.
[[gnu::always_inline]] inline bool Channel::is_signaled(const Connection& connection,
                                                        const WrContext& sent) noexcept {
    return sent.needs_completion() || connection.unsignaled() + 1 >= kSignalEvery ||
           connection.posted_ + 1 == connection.room_until_ ||
           (sent.buffer != nullptr && send_buffers_.is_half_taken());
}

// A program whose sends end at once need not poll. When half of the buffers are taken, each WR with
// a buffer would have a CQE of its own. One look at the CQ by 16 of them, where a CQE mostly stands
// for kSignalEvery, costs less.
[[gnu::always_inline]] inline bool Channel::should_poll(
    const Connection& connection) const noexcept {
    return send_buffers_.is_half_taken() && connection.posted_ % kPolledAtOnce == 0;
}

// Is there room for one more?
[[gnu::always_inline]] inline bool Channel::has_room(Connection& connection) noexcept {
    return connection.posted_ != connection.room_until_ || find_room(connection);
}

// It is posted. What needs a completion is signaled.
[[gnu::always_inline]] inline void Channel::note(Connection& connection, const WrContext& sent,
                                                 bool signal) noexcept {
    HEDDLE_DEBUG_ASSERT(connection.posted_ != connection.room_until_, "no room is reserved for it");
    HEDDLE_DEBUG_ASSERT(connection.posted_ - connection.done_ <= connection.sent_mask_,
                        "the record of an outstanding WR would be lost");
    const std::uint32_t number = connection.posted_++;
    const bool is_own = sent.what & WrContext::kOwn;
    if (!signal && !is_own && sent.buffer == nullptr) return;
    Connection::Record& record = connection.record(number);
    if (is_own) record.argument = Connection::own_mark(number);
    if (sent.buffer != nullptr) {
        record.buffer = send_buffers_.index_of(sent.buffer);
        connection.recorded_until_ = connection.posted_;
    }
    if (!signal) return;
    HEDDLE_DEBUG_ASSERT(sent.user != nullptr || (sent.what & ~WrContext::kOwn) == 0,
                        "a report has somebody to go to");
    if (sent.handler != nullptr) {
        record.argument = sent.handler;
        record.user = sent.user->number_;
        record.recipient = Connection::Recipient::kPart;
        connection.recorded_until_ = connection.posted_;
    } else if ((sent.what & ~WrContext::kOwn) != 0) {
        record.argument = sent.context;
        record.user = sent.user->number_;
        record.what = sent.what;
        record.recipient = Connection::Recipient::kUser;
        connection.recorded_until_ = connection.posted_;
    }
    connection.signaled_at_ = connection.posted_;
}

// For a connection that is direct() and has_room().
[[gnu::always_inline]] inline post::Posted Channel::post_direct(Connection& connection,
                                                                post::WorkRequest& work,
                                                                const WrContext& sent) noexcept {
    const bool signal = is_signaled(connection, sent);
    if (signal) work.flags |= post::kSignaled;
    const post::Posted posted = connection.direct_->post_now(work);
    if (posted == post::Posted::kOk) [[likely]]
        note(connection, sent, signal);
    return posted;
}

// An unsignaled WR may be posted at once: find_quiet() knows how many there is room for.
[[gnu::always_inline]] inline bool Channel::is_quiet(const Connection& connection) noexcept {
    return static_cast<std::int32_t>(connection.quiet_until_ - connection.posted_) > 0;
}

// Calls post(signaled) where there is room for one more.
template <class Post>
[[gnu::always_inline]] inline post::Posted Channel::post_quietly(Connection& connection,
                                                                 const WrContext& sent,
                                                                 const Post& post) noexcept {
    bool signal = false;
    if (sent.needs_completion() || !is_quiet(connection)) {
        if (!has_room(connection)) [[unlikely]]
            return post::Posted::kFull;
        signal = is_signaled(connection, sent);
        if (!sent.needs_completion()) connection.find_quiet(signal);
    }
    return post(signal);
}

template <bool kImmediate, bool kIsQuiet, class Taken>
[[gnu::always_inline]] inline post::Posted Channel::post_small(
    Connection& connection, std::uint64_t first, std::uint64_t second, std::uint64_t tail,
    std::uint32_t tail_bytes, std::uint32_t immediate, std::uint64_t srq, const WrContext& sent,
    const Taken& taken) noexcept {
    // its id is its number: see make_qp()
    const auto post = [&](bool signal) __attribute__((always_inline)) {
        return connection.direct_->post_small<kImmediate>(first, second, tail, tail_bytes,
                                                          immediate, srq, signal, [&] {
                                                              note(connection, sent, signal);
                                                              taken();
                                                          });
    };
    return kIsQuiet ? post(false) : post_quietly(connection, sent, post);
}

template <bool kImmediate, bool kIsQuiet>
[[gnu::always_inline]] inline post::Posted Channel::post_message(
    Connection& connection, std::uint64_t first, std::uint64_t second, const void* rest,
    std::size_t rest_bytes, std::uint32_t immediate, std::uint64_t srq,
    const WrContext& sent) noexcept {
    HEDDLE_DEBUG_ASSERT(sent.buffer == nullptr, "nothing is copied but into the entry");
    const auto post = [&](bool signal) __attribute__((always_inline)) {
        return connection.direct_->post_message<kImmediate>(
            first, second, static_cast<const std::byte*>(rest),
            static_cast<std::uint32_t>(rest_bytes), immediate, srq, signal,
            [&] { note(connection, sent, signal); });
    };
    return kIsQuiet ? post(false) : post_quietly(connection, sent, post);
}

}  // namespace heddle::protocol
