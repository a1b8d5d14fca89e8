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

// A send of this process has met the queue that messages to `target` take from empty. True: it will
// be told of posts, those included that come from now on, and goes by local.posts_seen. xrc_srq: as
// in take_receive(). Inside an epoch, under the run lock.
bool await_receive(device::Fabric& fabric, LocalQp& local, device::QueuePair& target,
                   std::uint32_t xrc_srq) noexcept;

// Receives have been posted to a shared queue of this process (its index): tells who waits. Inside
// an epoch.
void receives_posted(device::Fabric& fabric, std::uint32_t srq) noexcept;

// Has there been a post, of those that a queue which waits is told of?
inline bool told_of_post(device::Fabric& fabric, const LocalQp& local) noexcept {
    return fabric.self().receives_posted.load(std::memory_order_acquire) != local.posts_seen;
}

// A queue that waits may go on: what it waits out has passed, and if it is told of posts, there was
// one, or there was none for so long that it looks all the same.
inline bool may_go_on(device::Fabric& fabric, const LocalQp& local, std::uint64_t now) noexcept {
    return now >= local.wait_until && (now >= local.look_at || told_of_post(fabric, local));
}

// When it may, as far as is known: for whoever sleeps until then.
inline std::uint64_t goes_on_at(device::Fabric& fabric, const LocalQp& local) noexcept {
    return told_of_post(fabric, local) ? local.wait_until : local.look_at;
}

}  // namespace softhca::engine
