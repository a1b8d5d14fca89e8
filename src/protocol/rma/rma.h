// SPDX-License-Identifier: BSD-2-Clause
// RMA: RDMA reads and writes between memory of the application and registered memory of a peer.
// Threads: the endpoint's.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "protocol/core/core_services.h"
#include "protocol/core/request_pool.h"
#include "protocol/core/reuse_policy.h"

namespace heddle::protocol {

class Rma final : public RequestOwner {
public:
    // All are kept. limits: of the channel.
    Rma(CoreServices& core, RequestPool& requests, const SendLimits& limits,
        ReusePolicy& reuse) noexcept
        : core_(core), requests_(requests), limits_(limits), reuse_(reuse) {}
    // 0, or a negative FI_E number.
    ssize_t post(const RmaArguments& arguments);
    bool start(SendRequest& request) override;

private:
    post::Posted post_at_once(Peer& peer, const RmaArguments& arguments, std::uint8_t what);
    void moved(SendRequest& request, int error, int device_error);

    CoreServices& core_;
    RequestPool& requests_;
    const SendLimits& limits_;
    ReusePolicy& reuse_;
};

}  // namespace heddle::protocol
