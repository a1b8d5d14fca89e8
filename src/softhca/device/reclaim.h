// SPDX-License-Identifier: BSD-2-Clause
// Reclaims the objects of a process that died, or that leaves without having closed them.
#pragma once

#include <cstdint>

namespace softhca::device {

class Fabric;

// Frees everything that the process in this slot owned. The caller holds Segment.process_lock.
// Returns false if a stopped process delays the reuse of the objects; a later call completes it.
bool reclaim_process(Fabric& fabric, std::uint32_t slot) noexcept;

// Makes the QPs of a process that is about to end answer nobody any more. A kernel, too, destroys
// QPs before the process can be waited for. Async-signal-safe.
void silence_qps(Fabric& fabric, std::uint32_t slot) noexcept;

// Drops the references of a QP on other objects. Its owner or its reclaimer calls this when it
// frees the QP.
struct QueuePair;
void drop_qp_references(Fabric& fabric, QueuePair& qp) noexcept;
// Drops one reference on an XRC domain, and frees the domain with the last one.
void drop_xrc_domain(Fabric& fabric, std::uint32_t domain) noexcept;

// QueuePair.attention
inline constexpr std::uint32_t kAttentionState = 1;  // a peer has changed the QP's state

// Asks the owner of a QP to look at it.
void call_attention(Fabric& fabric, QueuePair& qp, std::uint32_t what) noexcept;
// Wakes the progress thread of a process.
void ring_bell(Fabric& fabric, std::uint32_t slot) noexcept;
void ring_bell(Segment& segment, std::uint32_t slot) noexcept;

}  // namespace softhca::device
