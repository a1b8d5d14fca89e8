// SPDX-License-Identifier: BSD-2-Clause
// The responder's receive queues: taking a receive work queue entry from a QP's own queue or from a
// shared one, scattering into it, flushing what is left when a QP fails.
//
// A receive that has been taken but not completed is marked in QueuePair.in_flight (for connected
// QPs, which have one requester): if that requester's process dies, whoever flushes the queue
// completes it in error, so that no buffer is lost; if it lives, the requester itself flushes when
// it is done, so that completions stay in order.
#pragma once

#include <cstdint>

#include "softhca/engine/completion.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

enum class Take { kOk, kEmpty, kBusy, kBroken };

struct Receive {
    std::uint32_t process;  // owner of the queue
    std::uint32_t pd;
    std::uint32_t cq;
    std::uint32_t uidx;
    std::uint32_t counter;  // for the CQE
    std::uint32_t srq;      // index, or kNone
    unsigned entries;
    mlx5_wqe_data_seg list[device::kMaxRqDescriptorBytes / 16];
    device::SharedLock* held;  // lock that release_receive() lets go, or nullptr
};

// Takes the next receive for a message to `target`. xrc_srq: the SRQ that the message names (XRC
// targets only). hold: keep the queue locked until release_receive(), for unconnected QPs, whose
// senders must complete in the order in which they took.
Take take_receive(device::Fabric& fabric, device::QueuePair& target, std::uint32_t xrc_srq,
                  bool hold, Receive& receive) noexcept;
// The next receive of a connected QP's own queue, if so many bytes go into its first entry and that
// is wholly shared, at *to. False, and nothing taken, in all other cases. `receive` has no list
// then. `reach` is the requester's, for receives.
bool take_one_piece(device::Fabric& fabric, device::QueuePair& target, std::size_t bytes,
                    Receive& receive, Reach& reach, std::byte** to) noexcept;
void release_receive(Receive& receive) noexcept;
// Puts a receive that was taken with `hold` back, as if it had not been, and releases it.
void return_receive(device::Fabric& fabric, device::QueuePair& target, Receive& receive) noexcept;
// Is there one? Without taking it.
bool receive_available(device::Fabric& fabric, device::QueuePair& target,
                       std::uint32_t xrc_srq) noexcept;

// Where `bytes` of payload go, after `skip` bytes. MLX5_CQE_SYNDROME_* or 0.
std::uint8_t scatter_list(device::Fabric& fabric, const Receive& receive, std::size_t skip,
                          std::size_t bytes, SpanList& list) noexcept;

// srq: that it was taken from, or 0.
void mark_in_flight(device::Fabric& fabric, device::QueuePair& target, std::uint32_t counter,
                    std::uint32_t srq = 0) noexcept;
void clear_in_flight(device::QueuePair& target) noexcept;
// A receive is marked, and who marked it is still there to complete it.
bool is_being_delivered(device::Fabric& fabric, const device::QueuePair& target) noexcept;

// Completes every receive posted to a QP in error with a flush error. One with an SRQ has at most
// the receive of a message whose sender died while it was delivered.
[[gnu::cold, gnu::noinline]] void flush_receives(device::Fabric& fabric, std::uint32_t qp) noexcept;

// The SRQ that an XRC message to this target names: live and of the target's domain, or nullptr.
device::SharedReceiveQueue* xrc_queue(device::Fabric& fabric, const device::QueuePair& target,
                                      std::uint32_t number) noexcept;
// The shared queue that messages to `target` take from, or nullptr: it has one of its own.
device::SharedReceiveQueue* shared_queue(device::Fabric& fabric, const device::QueuePair& target,
                                         std::uint32_t xrc_srq) noexcept;

}  // namespace softhca::engine
