// SPDX-License-Identifier: BSD-2-Clause
// The requests of an endpoint that are open. Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/pool.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/core_services.h"
#include "protocol/core/requests.h"

namespace heddle::protocol {

class RequestPool {
public:
    // Both are kept. send_buffers: what ZcopyRequest::copy_from points into.
    RequestPool(CoreServices& core, memory::Pool& send_buffers) noexcept
        : core_(core), send_buffers_(send_buffers) {}
    RequestPool(const RequestPool&) = delete;
    RequestPool& operator=(const RequestPool&) = delete;

    SendRequest& take(Peer& peer, RequestOwner& owner);
    // It is posted, or waits for room.
    void start(SendRequest& request);
    // Reports the request's end, unless that was done before, and gives it back. An error is
    // reported even if success would not have been.
    void finish(SendRequest& request, int error, int device_error);
    // Gives it back without a report.
    void end(SendRequest& request) noexcept;

    // By the number that travels in messages, if it waits for a reply of that peer; else nullptr.
    SendRequest* find_awaiting(std::uint64_t id, const Peer& peer) const noexcept;
    template <class Use>
    void for_each(const Use& use) const {
        requests_.for_each_in_use(use);
    }
    std::size_t open() const noexcept { return open_; }
    // Returns the memory of requests that a burst has needed, such as the first message to each of
    // many peers. Does nothing while one is open. No caller may be within a request.
    void trim() {
        if (open_ == 0) requests_.trim(kKept);
    }
    static constexpr std::size_t kKept = 64;

    // For messages and data that are copied.
    memory::Pool& send_buffers() const noexcept { return send_buffers_; }

    ZcopyRequest& take_zcopy(std::uint8_t what, void* context, Counter* counter);
    void give_back(ZcopyRequest& request) noexcept { zcopy_requests_.give_back(request); }

private:
    friend struct ZcopyRequest;
    CoreServices& core_;
    memory::Pool& send_buffers_;
    SlotPool<SendRequest> requests_;
    SlotPool<ZcopyRequest> zcopy_requests_;
    std::size_t open_ = 0;
};

}  // namespace heddle::protocol
