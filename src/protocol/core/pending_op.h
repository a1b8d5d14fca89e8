// SPDX-License-Identifier: BSD-2-Clause
// Operations that could not be posted when they were asked for: there is no connection yet, or no
// room in its send queue. They stand in a list of their peer, in that order, and are tried again
// when the peer's connection has changed.
#pragma once

#include <list>
#include <memory>

namespace heddle::protocol {

// Threads: the endpoint's.
class PendingOp {
public:
    virtual ~PendingOp() = default;
    // Posts it. False: there is still no room. After true, an operation of a pool may be in use for
    // another one.
    virtual bool try_post() = 0;
    // The peer has failed. After that, an operation of a pool may be in use for another one.
    virtual void fail(int error) = 0;
    // True if its message will have a sequence number.
    virtual bool is_sequenced() const noexcept { return false; }
};

// A list entry. It owns an operation that exists only while it waits, such as a control message.
// Other operations belong to a pool of the endpoint.
struct PendingDeleter {
    bool is_owner = true;
    void operator()(PendingOp* op) const noexcept {
        if (is_owner) delete op;
    }
};
using PendingPtr = std::unique_ptr<PendingOp, PendingDeleter>;
using PendingList = std::list<PendingPtr>;
inline PendingPtr of_pool(PendingOp& op) noexcept { return {&op, PendingDeleter{false}}; }

}  // namespace heddle::protocol
