// SPDX-License-Identifier: BSD-2-Clause
// Atomics, which the target's endpoint does when it makes progress: its side, and the side that
// asks. Threads: the endpoint's.
#pragma once

#include <sys/types.h>

#include "protocol/core/core_services.h"
#include "protocol/core/request_pool.h"
#include "protocol/transport/registered_regions.h"

namespace heddle::protocol {

class Atomics final : public RequestOwner {
public:
    // All are kept. regions: of the domain, which peers' requests name.
    Atomics(CoreServices& core, RequestPool& requests, RegisteredRegions& regions) noexcept
        : core_(core), requests_(requests), regions_(regions) {}
    // 0, or a negative FI_E number.
    ssize_t post(const AtomicArguments& arguments);
    bool start(SendRequest& request) override;
    // kAtomic, kAtomicReply.
    void on_request(Peer& peer, const Message& message);
    void on_reply(Peer& peer, const Message& message);

private:
    Header header_to(const Peer& peer) const noexcept;
    bool send(SendRequest& request, std::span<const std::byte> message);

    CoreServices& core_;
    RequestPool& requests_;
    RegisteredRegions& regions_;
};

}  // namespace heddle::protocol
