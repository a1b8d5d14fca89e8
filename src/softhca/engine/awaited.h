// SPDX-License-Identifier: BSD-2-Clause
// Who waits for a receive of a shared queue is told when one is posted. An RNR timer is made for
// tens of microseconds, and a NAK every ten of them costs a real adapter nothing; here each takes a
// processor from somebody, perhaps from the one who is to post. Works for queues whose receives are
// posted through libmlx5's calls (hooks.cc); the others' are found by the timer alone.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// What a sender goes by that has met an empty queue.
struct Awaited {
    bool announced = false;  // it will be told
    std::uint32_t posts_seen = 0;
};

// A send of this process has met the queue that messages to `target` take from empty: from now on
// it will be told of posts, those included that came since. xrc_srq: as in take_receive(). Inside
// an epoch.
Awaited await_receive(device::Fabric& fabric, device::QueuePair& target,
                      std::uint32_t xrc_srq) noexcept;

// Receives have been posted to a shared queue of this process (its index): tells who waits. Inside
// an epoch.
void receives_posted(device::Fabric& fabric, std::uint32_t srq) noexcept;

// A queue that waits may go on: what it waits out has passed, and if it is told of posts, there was
// one, or there was none for so long that it looks all the same.
inline bool may_go_on(device::Fabric& fabric, const LocalQp& local, std::uint64_t now) noexcept {
    if (now < local.wait_until) return false;
    return now >= local.look_at ||
           fabric.self().receives_posted.load(std::memory_order_acquire) != local.posts_seen;
}

// When it may, as far as is known: for whoever sleeps until then.
inline std::uint64_t goes_on_at(device::Fabric& fabric, const LocalQp& local) noexcept {
    const bool posted =
        fabric.self().receives_posted.load(std::memory_order_acquire) != local.posts_seen;
    const std::uint64_t waits = local.wait_until, looks = local.look_at;
    return posted || looks < waits ? waits : looks;
}

}  // namespace softhca::engine
