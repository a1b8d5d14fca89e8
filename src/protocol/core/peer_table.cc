// SPDX-License-Identifier: BSD-2-Clause
// The peers of an endpoint: see peer_table.h.
#include "protocol/core/peer_table.h"

#include <endian.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

Peer* PeerTable::at(std::uint64_t address) {
    if (addresses_.removals() != removals_seen_) [[unlikely]] {
        removals_seen_ = addresses_.removals();
        std::fill_n(by_address_.get(), addresses_known_, &nobody_);
        for (const auto& peer : peers_)
            peer->address = AddressVector::kNone;
    }
    if (address < addresses_known_ && by_address_[address] != &nobody_) [[likely]]
        return by_address_[address];
    const EndpointAddress* const found = addresses_.find(address);
    if (found == nullptr) return nullptr;
    Peer& peer = of(*found);
    if (addresses_known_ <= address) {
        HEDDLE_ASSERT(address < addresses_.size(),
                      "the address vector has an address beyond its end");
        auto more = std::make_unique<Peer*[]>(addresses_.size());
        std::fill_n(std::copy_n(by_address_.get(), addresses_known_, more.get()),
                    addresses_.size() - addresses_known_, &nobody_);
        by_address_ = std::move(more);
        addresses_known_ = addresses_.size();
    }
    return by_address_[address] = &peer;
}

Peer& PeerTable::of(const EndpointAddress& wanted) {
    Peer*& known = by_name_[wanted];
    if (known == nullptr) {
        HEDDLE_ASSERT(peers_.size() < UINT32_MAX, "as many peers as there are numbers for them");
        peers_.push_back(std::make_unique<Peer>());
        known = peers_.back().get();
        known->name = wanted;
        known->number = static_cast<std::uint32_t>(peers_.size() - 1);
        known->srq = htobe32(wanted.srqn);
        known->incoming.expected =
            start_of({Kind::kEager, 0, wanted.endpoint, own_.endpoint, 0, 0});
        known->outgoing.next_start =
            start_of({Kind::kEager, 0, own_.endpoint, wanted.endpoint, 0, 0});
    }
    if (known->address == AddressVector::kNone) known->address = addresses_.find(wanted);
    return *known;
}

// The number of a QP that is gone may be another's later.
Peer* PeerTable::find_source(std::uint32_t qpn, std::uint16_t endpoint) {
    const std::uint64_t key = std::uint64_t{qpn} << 16 | endpoint;
    if (owners_->removals() != source_removals_) [[unlikely]] {
        source_removals_ = owners_->removals();
        sources_.clear();
        last_source_ = &nobody_;
    }
    Peer*& known = sources_[key];
    if (known == nullptr) {
        const std::optional<EndpointAddress> asker = owners_->asker(qpn);
        if (!asker) {
            sources_.erase(key);
            return nullptr;
        }
        EndpointAddress name_there = *asker;
        name_there.endpoint = endpoint;
        known = &of(name_there);
    }
    HEDDLE_ASSERT(known->name.endpoint == endpoint, "a target QP's peer has another number");
    last_source_qpn_ = qpn;
    return last_source_ = known;
}

}  // namespace heddle::protocol
