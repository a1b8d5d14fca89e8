// SPDX-License-Identifier: BSD-2-Clause
// Send queues that wait for a receive of an SRQ are told when one is posted. An RNR timer is made
// for tens of microseconds, and a NAK every ten of them costs a real adapter nothing. Here each one
// takes a processor from a thread, perhaps from the thread that would post the receive. This works
// for SRQs whose receives are posted through libmlx5's calls (hooks.cc); others are found by the
// timer alone.
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

// Receives have been posted to an SRQ of this process (its index): tells the processes that wait.
// Inside an epoch.
void receives_posted(device::Fabric& fabric, std::uint32_t srq) noexcept;

// Has a receive been posted that this send queue is told of, since it began to wait?
inline bool told_of_post(device::Fabric& fabric, const LocalQp& local) noexcept {
    return fabric.self().receives_posted.load(std::memory_order_acquire) != local.posts_seen;
}

// May a send queue that waits go on? Its timer has expired; and if it is told of posts, there was
// one, or there was none for so long that it looks by itself.
inline bool may_go_on(device::Fabric& fabric, const LocalQp& local, std::uint64_t now) noexcept {
    return now >= local.wait_until && (now >= local.look_at || told_of_post(fabric, local));
}

// The time from which it may go on, as far as is known: for a thread that sleeps until then.
inline std::uint64_t goes_on_at(device::Fabric& fabric, const LocalQp& local) noexcept {
    return told_of_post(fabric, local) ? local.wait_until : local.look_at;
}

}  // namespace softhca::engine
