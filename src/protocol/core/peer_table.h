// SPDX-License-Identifier: BSD-2-Clause
// The peers of an endpoint: by their number here, by the application's address (fi_addr_t), by what
// they are called, and by the target QP that a message came by.
//
// A peer, once known, stays for the life of the endpoint: numbers of peers are kept in receives and
// messages. Threads: the endpoint's.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "protocol/common/address_vector.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/core/peer.h"
#include "protocol/wireup/targets.h"

namespace heddle::protocol {

class PeerTable {
public:
    // Both are kept. `own` may be filled in later, before the first peer.
    PeerTable(const AddressVector& addresses, const EndpointAddress& own) noexcept
        : addresses_(addresses), own_(own) {
        nobody_.failed = EDESTADDRREQ;
    }
    PeerTable(const PeerTable&) = delete;
    PeerTable& operator=(const PeerTable&) = delete;

    // Kept. Before the first message.
    void set_target_owners(const TargetOwners& owners) noexcept { owners_ = &owners; }

    // nullptr: the address vector has no such address.
    Peer* at(std::uint64_t address);
    // The same for an address that at() was asked for before; any other gives a peer without a
    // connection, which has failed. False, with `peer` unset, where only at() knows.
    [[gnu::always_inline]] bool find_quickly(std::uint64_t address, Peer*& peer) const noexcept {
        if (addresses_.removals() != removals_seen_ || address >= addresses_known_) [[unlikely]]
            return false;
        peer = by_address_[address];
        return true;
    }
    Peer& of(const EndpointAddress& wanted);
    std::uint64_t address_of(Peer& peer) {  // as the application sees it
        return peer.address != AddressVector::kNone ? peer.address : of(peer.name).address;
    }

    // The peer whose process asked for that target QP, and which has that number there. nullptr:
    // there is no such QP.
    [[gnu::always_inline]] Peer* source(std::uint32_t qpn, std::uint16_t endpoint) {
        if (qpn == last_source_qpn_ && endpoint == last_source_->name.endpoint &&
            owners_->removals() == source_removals_ && last_source_ != &nobody_) [[likely]]
            return last_source_;
        return find_source(qpn, endpoint);
    }
    // The peer of the last call, and whether a message that begins so (without kTaggedStart) and
    // came by that QP is the next one of that peer.
    Peer& last_source() const noexcept { return *last_source_; }
    bool is_next_of_last_source(std::uint64_t start, std::uint32_t qpn) const noexcept {
        return start == last_source_->incoming.expected && qpn == last_source_qpn_ &&
               owners_->removals() == source_removals_;
    }

    std::size_t size() const noexcept { return peers_.size(); }
    bool empty() const noexcept { return peers_.empty(); }
    const std::unique_ptr<Peer>& operator[](std::size_t number) const noexcept {
        return peers_[number];
    }
    auto begin() const noexcept { return peers_.begin(); }
    auto end() const noexcept { return peers_.end(); }

private:
    Peer* find_source(std::uint32_t qpn, std::uint16_t endpoint);

    const AddressVector& addresses_;
    const EndpointAddress& own_;
    const TargetOwners* owners_ = nullptr;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_map<EndpointAddress, Peer*, EndpointAddressHash> by_name_;
    std::unique_ptr<Peer*[]> by_address_;  // or `nobody_`
    std::uint64_t addresses_known_ = 0;    // so many are in by_address_
    std::uint64_t removals_seen_ = 0;
    std::unordered_map<std::uint64_t, Peer*> sources_;  // by target QP << 16 | endpoint
    Peer nobody_;                                       // never has a connection
    Peer* last_source_ = &nobody_;
    std::uint32_t last_source_qpn_ = 0;
    std::uint64_t source_removals_ = 0;
};

}  // namespace heddle::protocol
