// SPDX-License-Identifier: BSD-2-Clause
// The receive buffers of a channel, and posting them to its SRQ.
#include <algorithm>
#include <exception>

#include "heddle/detail/assert.h"
#include "protocol/transport/channel_limits.h"
#include "protocol/transport/channel_poll.h"

namespace heddle::protocol {

// Posts the buffers from that number on, which are new.
void Channel::use_buffers_from(std::uint32_t first) noexcept {
    const std::uint32_t count = receive_buffers_->count();
    HEDDLE_ASSERT(first < count, "there are new buffers");
    if (direct_srq_) {
        direct_srq_->fill(
            [this](std::uint32_t index, std::uint64_t& id) {
                id = kReceive | index;
                return receive_into(index);
            },
            first, count);
        if (first != 0) direct_srq_->grow(count);
        direct_srq_->post_again(first == 0 ? count - 1 : count - first);
        return;
    }
    for (std::uint32_t i = first; i < count; ++i)
        to_post_.push_back(i);
    ring_receives();
}

// A burst of messages has taken half of the receives before they were read. If it takes all, its
// senders wait for their RNR timers, and repeat what they have sent. So there are twice as many
// from now on, up to options.receive_bytes, which the SRQ and the CQ have entries for.
void Channel::grow_receives() noexcept {
    const std::uint32_t count = receive_buffers_->count();
    HEDDLE_ASSERT(count <= most_receives_, "the SRQ has entries for no more buffers");
    const std::uint32_t wanted = std::min(2 * count, most_receives_);
    if (wanted == count || cannot_grow_) return;
    try {
        receive_buffers_->grow(wanted);
    } catch (const std::exception&) {  // RLIMIT_MEMLOCK, mostly: then they stay as many as they are
        cannot_grow_ = true;
        return;
    }
    use_buffers_from(count);
}

ibv_sge Channel::receive_into(std::uint32_t buffer) const noexcept {
    return {reinterpret_cast<std::uintptr_t>(receive_buffers_->at(buffer)),
            static_cast<std::uint32_t>(receive_buffers_->bytes()), receive_buffers_->key(buffer)};
}

// What came into the buffer has been dealt with.
void Channel::add_receive(std::uint32_t buffer) noexcept {
    if (direct_srq_) {  // the CQ has released the entry
        count_free_receive();
        return;
    }
    to_post_.push_back(buffer);
    HEDDLE_DEBUG_ASSERT(to_post_.size() <= receive_buffers_->count(), "a buffer came back twice");
    if (to_post_.size() >= receives_at_once_) ring_receives();
}

// Entries come back in the order of their completions, in which messages are dealt with: the one
// that is posted next is one whose buffer is free.
//
// Their completions are given back to the device no sooner: no more come before these receives are
// there again, and the cache line of that counter, in which the device looks for each message
// whether the queue is armed, changes a sixteenth as often.
void Channel::post_free_receives() noexcept {
    HEDDLE_DEBUG_ASSERT(until_posting_ == 0, "as many entries are free as are posted at once");
    direct_cq_->publish();
    direct_srq_->post_again(receives_at_once_);
    until_posting_ = receives_at_once_;
    if (is_crowded()) [[unlikely]]
        grow_receives();
}

void Channel::ring_receives() noexcept {
    std::size_t taken = 0;
    for (; taken < to_post_.size(); ++taken) {
        ibv_sge sge = receive_into(to_post_[taken]);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = kReceive | to_post_[taken];
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (ibv_post_srq_recv(objects_.srq(), &wr, &bad) != 0) break;
    }
    to_post_.erase(to_post_.begin(), to_post_.begin() + static_cast<std::ptrdiff_t>(taken));
}

}  // namespace heddle::protocol
