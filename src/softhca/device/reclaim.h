// SPDX-License-Identifier: BSD-2-Clause
// What happens to the objects of a process that is gone (or leaves without having closed them).
#pragma once

#include <cstdint>

namespace softhca::device {

class Fabric;

// Frees everything the process in this slot owned. Under Segment.process_lock. False if a stopped
// process keeps them from being freed now; then a later call goes on.
bool reclaim_process(Fabric& fabric, std::uint32_t slot) noexcept;

// The process is about to end without reclaiming: its QPs answer nobody from now on, as those that
// a kernel destroys before the process can be waited for. Async-signal-safe.
void silence_qps(Fabric& fabric, std::uint32_t slot) noexcept;

// What else a QP holds: drops its references when it is freed (by its owner or by reclaim).
struct QueuePair;
void drop_qp_references(Fabric& fabric, QueuePair& qp) noexcept;
// One reference less on an XRC domain; frees it with the last.
void drop_xrc_domain(Fabric& fabric, std::uint32_t domain) noexcept;

// QueuePair.attention
inline constexpr std::uint32_t kAttentionState = 1;  // its state was changed by a peer

// Asks the owner of a QP to look at it.
void call_attention(Fabric& fabric, QueuePair& qp, std::uint32_t what) noexcept;
// Rings the bell of a process's progress thread.
void ring_bell(Fabric& fabric, std::uint32_t slot) noexcept;

}  // namespace softhca::device
