// SPDX-License-Identifier: BSD-2-Clause
// Receives as the application posts and cancels them, and its looks at messages that no receive has
// taken (probe.cc). Threads: the endpoint's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

#include "protocol/core/core_services.h"
#include "protocol/tag/delivery.h"
#include "protocol/tag/receives.h"

namespace heddle::protocol {

// A part of the endpoint that takes tagged receives before they are matched here.
class ReceiveInterceptor {
public:
    // A receive that is about to be posted: true, it was, there.
    virtual bool take(Receive& receive) = 0;
    // Somebody asks for messages that may wait there. True: it cannot be said yet which is the
    // first.
    virtual bool hides(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) = 0;
    // One with PostedReceive::waits has left the matcher, and will end.
    virtual void forget(Receive& receive) = 0;
    // Cancels one that it has. False: it has none with that context.
    virtual bool cancel(void* context) = 0;

protected:
    ~ReceiveInterceptor() = default;
};

class Receiver {
public:
    // Keeps references to all arguments.
    Receiver(CoreServices& core, Receives& receives, Delivery& delivery) noexcept
        : core_(core), receives_(receives), delivery_(delivery) {}
    ~Receiver();
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    // Kept, until it is nullptr again: there is none.
    void set_interceptor(ReceiveInterceptor* interceptor) noexcept { interceptor_ = interceptor; }

    // Posts a receive, or looks for a message (FI_PEEK, FI_CLAIM, FI_DISCARD). 0, or a negative
    // FI_E number.
    ssize_t post(const ReceiveArguments& arguments);
    // 0, or -FI_ENOENT: nothing with that context waits. It ends with FI_ECANCELED.
    ssize_t cancel(void* context);
    // Receives end that only this peer could have satisfied; or all of them. In the order of
    // posting.
    void on_peer_failed(const Peer& peer);
    void on_device_failed(int error);
    // Sets which peers (by number) have a receive that only they can satisfy.
    void mark_sources(std::vector<bool>& has_receive);

private:
    ssize_t peek(const ReceiveArguments& arguments);
    void claim(const ReceiveArguments& arguments, Unexpected& message);
    void report(const Unexpected& message, void* context);
    template <class Wanted>
    void fail(int error, const Wanted& wanted);

    CoreServices& core_;
    Receives& receives_;
    Delivery& delivery_;
    ReceiveInterceptor* interceptor_ = nullptr;
    std::unordered_map<void*, Unexpected*> claimed_;  // by the context of the claim
};

}  // namespace heddle::protocol
