// SPDX-License-Identifier: BSD-2-Clause
// Channel::poll for a user that takes its messages where they are found, by take_message(); those
// of others it hands over. And one message at once, which the caller may take or leave.
#pragma once

#include "protocol/transport/channel.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

template <class User>
[[gnu::noinline]] void Channel::poll_inlined(User& user, const mlx5_cqe64& cqe) {
    const CompletedMessage message(cqe);
    const std::uint32_t entry = message.entry();
    if (entry >= receive_buffers_->count()) return;
    if (message.bytes() >= sizeof(Header))
        user.take_message({direct_cq_->inlined_bytes(cqe), message.bytes()},
                          message.has_immediate(), message.immediate(), message.qpn());
    direct_srq_->release_own(entry);
    count_free_receive();
}

template <class User>
[[gnu::always_inline]] inline unsigned Channel::poll_for(User& user, unsigned most) {
    if (changed_.load(std::memory_order_relaxed)) [[unlikely]]
        look_at_changes();
    if (!direct_cq_) return poll_verbs(most);
    auto& cq = *direct_cq_;
    unsigned found = 0;
    bool others = false;
    for (const mlx5_cqe64* cqe = cq.first(); cqe != nullptr; cqe = cq.next()) {
        cq.pop();
        if (cq.is_message(*cqe)) [[likely]] {
            // On the direct path an entry's number is its buffer's.
            const CompletedMessage message(*cqe);
            const std::uint32_t entry = message.entry();
            if (entry < receive_buffers_->count()) [[likely]] {
                if (message.bytes() >= sizeof(Header)) [[likely]]
                    user.take_message({receive_buffers_->at(entry), message.bytes()},
                                      message.has_immediate(), message.immediate(), message.qpn());
                direct_srq_->release_own(entry);
                count_free_receive();
            }
        } else if (cq.is_inlined_message(*cqe)) {
            poll_inlined(user, *cqe);
        } else {
            other(*cqe);
            others = true;
        }
        if (++found == most || (user.has_enough() && !is_crowded())) break;
    }
    if (others) {
        cq.publish();
        if (!growing_.empty()) [[unlikely]]
            look_at_growing();
    }
    return found;
}

template <class Take>
[[gnu::always_inline]] inline bool Channel::take_next_inlined(const Take& take) {
    auto& cq = *direct_cq_;
    if (!cq.has_inlined_message()) return false;
    const CompletedMessage message(cq.front());
    const std::uint32_t entry = message.entry();
    if (entry >= receive_buffers_->count() || message.bytes() < sizeof(Header) ||
        !take(cq.inlined_bytes(cq.front()), message))
        return false;
    cq.pop();
    direct_srq_->release_own(entry);
    count_free_receive();
    return true;
}

template <class Take>
[[gnu::always_inline]] inline bool Channel::take_next(const Take& take) {
    auto& cq = *direct_cq_;
    if (!cq.has_message()) return false;
    const CompletedMessage message(cq.front());
    const std::uint32_t entry = message.entry();
    if (entry >= receive_buffers_->count() || message.bytes() < sizeof(Header) ||
        !take(receive_buffers_->at(entry), message)) [[unlikely]]
        return false;
    cq.pop();
    direct_srq_->release_own(entry);
    count_free_receive();
    return true;
}

}  // namespace heddle::protocol
