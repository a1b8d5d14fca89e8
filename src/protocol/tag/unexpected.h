// SPDX-License-Identifier: BSD-2-Clause
// Messages that wait for a receive: how much memory they may take, by peer. Threads: the
// endpoint's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "protocol/core/core_services.h"
#include "protocol/tag/receives.h"

namespace heddle::protocol {

class UnexpectedMessages {
public:
    // Keeps references to both arguments.
    UnexpectedMessages(CoreServices& core, Receives& receives) noexcept
        : core_(core), receives_(receives) {}
    ~UnexpectedMessages();
    UnexpectedMessages(const UnexpectedMessages&) = delete;
    UnexpectedMessages& operator=(const UnexpectedMessages&) = delete;

    // So many bytes more of that peer may be kept. False: the peer has failed for it, whatever it
    // sends. The sender's own limits are not believed.
    bool may_keep(Peer& peer, std::size_t bytes) {
        if (kept_of(peer) + bytes <= core_.options.unexpected_limit) [[likely]]
            return true;
        refuse(peer, kept_of(peer) + bytes);
        return false;
    }
    // Messages without a receive. They are queued, unless the peer may not have more kept here.
    void keep_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                    std::span<const std::byte> payload);
    void keep_eager(Peer& peer, bool is_tagged, const MessageInfo& info,
                    std::unique_ptr<std::byte[]> payload, std::size_t bytes);
    void keep_announced(Peer& peer, bool is_tagged, const AnnouncedMessage& announced,
                        std::span<const Segment> segments, const PlaceBody* late);
    // One that is queued no more is forgotten.
    void release(Unexpected& message);

private:
    // Objects of messages that have found their receives are used again, up to so many. A SlotPool
    // would keep as many as there ever were.
    static constexpr std::size_t kMostFree = 1024;

    void keep(Unexpected& message, bool is_tagged);
    Unexpected& make(Peer& peer, const MessageInfo& info);
    std::size_t& kept_of(const Peer& peer) {
        if (peer.number >= kept_.size()) [[unlikely]]
            make_room();
        return kept_[peer.number];
    }
    void make_room();
    void refuse(Peer& peer, std::size_t wanted);

    CoreServices& core_;
    Receives& receives_;
    std::vector<std::size_t> kept_;  // memory, by Peer::number
    std::size_t payload_bytes_ = 0;  // of all
    Unexpected* free_ = nullptr;     // the first of those that are
    std::size_t free_count_ = 0;
};

}  // namespace heddle::protocol
