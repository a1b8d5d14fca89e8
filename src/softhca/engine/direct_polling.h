// SPDX-License-Identifier: BSD-2-Clause
// QPs that are posted to past the ops table (mlx5dv users): nobody calls the engine for these
// posts, so the progress thread polls the doorbell records. While there is such a QP, it also polls
// the arm words of CQs that have a channel.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/local.h"

namespace softhca::engine {

// From now on its doorbell record is polled.
void mark_direct(device::Fabric& fabric, LocalQp& local) noexcept;
void forget_direct(LocalQp& local) noexcept;

// CQs of this process that have a channel: their arm words are polled while any QP is direct.
void watch_channel_cq(std::uint32_t cq) noexcept;
void unwatch_channel_cq(std::uint32_t cq) noexcept;

// How often the records must be polled: kSeldom where every doorbell is announced
// (softhca_doorbell()), for what that cannot tell.
enum class Polling { kNo, kSeldom, kOften };

// Where every doorbell is announced, the records are polled once in such a time.
inline constexpr std::uint64_t kSeldomPeriod = 10'000'000;  // ns

// Looks at all of them once, or at none before kSeldomPeriod is over. `last_work`: set to now if
// there was a post. Inside an epoch; only the progress thread.
Polling poll_direct(device::Fabric& fabric, std::uint64_t& last_work) noexcept;

void forget_direct_after_fork() noexcept;

}  // namespace softhca::engine
