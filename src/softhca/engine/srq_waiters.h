// SPDX-License-Identifier: BSD-2-Clause
// Notifies a process whose send queue waits for a receive of an SRQ when one is posted. RNR timers
// last tens of microseconds. A real adapter sends a NAK every ten microseconds at no cost, but here
// each retry takes a processor from a thread, perhaps from the thread that will post the receive.
// This works for SRQs whose receives are posted through libmlx5's calls (hooks.cc). For other SRQs
// only the timer finds a post.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// A send of this process has found the queue empty that messages to `target` take from. If it
// returns true, the process will be notified of posts from now on: its number of notified posts
// then differs from local.posts_seen. xrc_srq: as in take_receive(). The caller is inside an epoch
// and holds the run lock.
bool await_receive(device::Fabric& fabric, LocalQp& local, device::QueuePair& target,
                   std::uint32_t xrc_srq) noexcept;

// Receives have been posted to the SRQ of this index, which belongs to this process. Notifies the
// processes that wait. The caller is inside an epoch.
void receives_posted(device::Fabric& fabric, std::uint32_t srq) noexcept;

// Whether a receive of which this send queue is notified has been posted since it began to wait.
inline bool has_new_post(device::Fabric& fabric, const LocalQp& local) noexcept {
    return fabric.self().receives_posted.load(std::memory_order_acquire) != local.posts_seen;
}

// Whether a waiting send queue may continue. Its timer must have expired. If it is notified of
// posts, there must also have been one, or none for so long that it retries anyway.
inline bool may_go_on(device::Fabric& fabric, const LocalQp& local, std::uint64_t now) noexcept {
    return now >= local.wait_until && (now >= local.look_at || has_new_post(fabric, local));
}

// The earliest time at which it may continue, as far as is known, for a thread that sleeps until
// then.
inline std::uint64_t goes_on_at(device::Fabric& fabric, const LocalQp& local) noexcept {
    return has_new_post(fabric, local) ? local.wait_until : local.look_at;
}

}  // namespace softhca::engine
