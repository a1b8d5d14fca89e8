// SPDX-License-Identifier: BSD-2-Clause
// A long message is read by several ports of both hosts, "rails": a part by the connection of the
// peer, and a stripe by each other rail. What a rail does not bring is read by that connection,
// too. This is what RGET (rendezvous.h) asks of the rails; rails.h has them. Threads: the
// endpoint's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "protocol/core/peer.h"
#include "protocol/transport/bulk.h"

namespace heddle::protocol {

struct Stripe;

class StripeOwner {
public:
    // It was read; or an errno.
    virtual void on_stripe(Stripe& stripe, int error) = 0;

protected:
    ~StripeOwner() = default;
};

struct Stripe {
    StripeOwner* owner = nullptr;
    Bulk::Range range;  // of the message
    bool is_under_way = false;
};
using Stripes = std::array<Stripe, kOtherRails>;

// The memories of both sides, as Bulk has them.
struct StripedMemory {
    std::span<const iovec> local;
    std::span<const Segment> remote;
};

class StripeReader {
public:
    // The sender's: registers the memory of a message at each of its rails. nullptr: the message
    // is too short, the peer reads by one rail, or there was no room.
    virtual std::unique_ptr<RailMemory> register_memory(const Peer& peer,
                                                        std::span<const iovec> memory,
                                                        std::size_t bytes) = 0;
    // The receiver's: divides a message of which `bytes` are wanted, and reads the stripes. Those
    // that are under way end with a call of `owner`, later. How many bytes the caller has to read,
    // from the first.
    virtual std::size_t read(const Peer& peer, const StripedMemory& memory, std::size_t bytes,
                             StripeOwner& owner, Stripes& stripes) = 0;

protected:
    ~StripeReader() = default;
};

}  // namespace heddle::protocol
