// SPDX-License-Identifier: BSD-2-Clause
// Target QPs of a process: the ends that peers send to, made by the connector when they ask. What
// the other parts of the protocol want to know of them, and can do to them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "protocol/common/endpoint_address.h"

namespace heddle::protocol {

// The senders to target QPs. Any thread.
class TargetOwners {
public:
    explicit TargetOwners(const std::atomic<std::uint64_t>& removals) noexcept
        : removals_(&removals) {}
    TargetOwners(const TargetOwners&) = delete;
    TargetOwners& operator=(const TargetOwners&) = delete;
    // The sender to the target QP of that number: the asking endpoint's name, of which `process`
    // and `context` hold for every endpoint that shares the QP.
    virtual std::optional<EndpointAddress> asker(std::uint32_t target_qpn) const = 0;
    // Changes when a target QP has got the number of one that is gone.
    std::uint64_t removals() const noexcept { return removals_->load(std::memory_order_acquire); }

protected:
    ~TargetOwners() = default;

private:
    const std::atomic<std::uint64_t>* removals_;
};

class TargetQueuePairs : public TargetOwners {
public:
    using TargetOwners::TargetOwners;
    // The peer's QP of that number has failed, and nothing of it shall arrive here any more: its
    // target goes. (What it knows of its own QP only its owner has to believe.)
    virtual void drop(const EndpointAddress& peer, std::uint32_t peer_qpn) = 0;
    // Nothing more arrives by a target of that QP: there is none, or the device has said so.
    virtual bool is_quiet(const EndpointAddress& peer, std::uint32_t peer_qpn) const = 0;
    // What came from that peer to this endpoint cannot be believed: nothing of its channel arrives
    // there any more, and its WRs fail, so that it does not wait for replies.
    virtual void refuse(const EndpointAddress& peer, const EndpointAddress& endpoint) = 0;
    // The peer was connected to the endpoint, and has said that it is no more: nothing comes from
    // it but what has come already. Not for those who have never been, or are again.
    virtual bool has_left(const EndpointAddress& peer, const EndpointAddress& endpoint) const = 0;

protected:
    ~TargetQueuePairs() = default;
};

}  // namespace heddle::protocol
