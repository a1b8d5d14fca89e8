// SPDX-License-Identifier: BSD-2-Clause
// The responder's receive queues: takes a receive WQE from a QP's own queue or from a shared one,
// scatters payload into it, and flushes the rest when a QP fails.
//
// A receive that was taken but not completed is marked in QueuePair.in_flight. This is done for
// connected QPs, which have one requester. If that requester's process dies, the thread that
// flushes the queue completes the receive in error, so no buffer is lost. If it lives, the
// requester itself flushes when it is done, so completions stay in order.
#pragma once

#include <cstdint>

#include "softhca/engine/completion.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

enum class Take { kOk, kEmpty, kBusy, kBroken };

struct Receive {
    std::uint32_t process;  // slot of the queue's owner
    std::uint32_t pd;
    std::uint32_t cq;
    std::uint32_t uidx;
    std::uint32_t counter;  // for the CQE
    std::uint32_t srq;      // index, or kNone
    unsigned entries;
    mlx5_wqe_data_seg list[device::kMaxRqDescriptorBytes / 16];
    device::SharedLock* held;  // the lock that release_receive() releases, or nullptr
};

// Takes the next receive for a message to `target`. xrc_srq: the SRQ that the message names (XRC
// targets only). hold: keep the queue locked until release_receive(). This is for unconnected QPs,
// whose senders must complete in the order in which they took receives.
Take take_receive(device::Fabric& fabric, device::QueuePair& target, std::uint32_t xrc_srq,
                  bool hold, Receive& receive) noexcept;
// As take_receive() for a connected QP, without `hold`, if `bytes` fit the receive's first SGE and
// they are wholly shared; *to is their address. `receive` has no list then. Otherwise it returns
// false and takes nothing. `reach` is the requester's, for receives.
bool take_one_sge(device::Fabric& fabric, device::QueuePair& target, std::uint32_t xrc_srq,
                  std::size_t bytes, Receive& receive, Reach& reach, std::byte** to) noexcept;
void release_receive(Receive& receive) noexcept;
// Returns a receive that was taken with `hold` to the queue, as if it had not been taken, and
// releases the queue.
void return_receive(device::Fabric& fabric, device::QueuePair& target, Receive& receive) noexcept;
// Whether a receive is posted. Takes none.
bool receive_available(device::Fabric& fabric, device::QueuePair& target,
                       std::uint32_t xrc_srq) noexcept;

// Finds where `bytes` of payload go, after `skip` bytes. Returns an MLX5_CQE_SYNDROME_* or 0.
std::uint8_t scatter_list(device::Fabric& fabric, const Receive& receive, std::size_t skip,
                          std::size_t bytes, SpanList& list) noexcept;

// srq: the SRQ that it was taken from, or 0.
void mark_in_flight(device::Fabric& fabric, device::QueuePair& target, std::uint32_t counter,
                    std::uint32_t srq = 0) noexcept;
void clear_in_flight(device::QueuePair& target) noexcept;
// Whether a receive is marked, and the process that marked it still lives to complete it.
bool is_being_delivered(device::Fabric& fabric, const device::QueuePair& target) noexcept;

// Completes every receive that is posted to a QP in error with a flush error. A QP with an SRQ has
// at most one: that of a message whose sender died during the delivery.
[[gnu::cold, gnu::noinline]] void flush_receives(device::Fabric& fabric, std::uint32_t qp) noexcept;

// The SRQ that an XRC message to this target names, or nullptr unless it is live and in the
// target's domain.
device::SharedReceiveQueue* xrc_queue(device::Fabric& fabric, const device::QueuePair& target,
                                      std::uint32_t number) noexcept;
// The shared queue that messages to `target` take from, or nullptr if it has a queue of its own.
device::SharedReceiveQueue* shared_queue(device::Fabric& fabric, const device::QueuePair& target,
                                         std::uint32_t xrc_srq) noexcept;

}  // namespace softhca::engine
