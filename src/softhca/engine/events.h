// SPDX-License-Identifier: BSD-2-Clause
// Event channels: the pipes behind ibv_get_cq_event and ibv_get_async_event. The records are those
// of the kernel's uverbs (struct ib_uverbs_comp_event_desc, struct ib_uverbs_async_event_desc). A
// channel of rdma_cm has its events in the segment, and a byte in its pipe while there are any.
#pragma once

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

// Creates a channel of this process. The application's descriptor is stored in *fd. Returns the
// index in Segment.channels, or kNone and errno.
std::uint32_t open_channel(device::Fabric& fabric, std::uint32_t context, device::ChannelKind kind,
                           int* fd) noexcept;
void close_channel(device::Fabric& fabric, std::uint32_t channel) noexcept;
// The channel of this process that reads from `fd`, or kNone.
std::uint32_t find_channel(int fd) noexcept;
// Whether the index names a channel of that kind.
bool is_channel(const device::Segment& segment, std::uint32_t channel,
                device::ChannelKind kind) noexcept;

// Sends one completion event. Returns false if it could not be delivered: the pipe is full or the
// process is gone. The caller is inside an epoch and holds the CQ's lock.
bool send_completion_event(device::Fabric& fabric, std::uint32_t channel, std::uint32_t generation,
                           std::uint64_t user_handle) noexcept;

// Sends an asynchronous event (enum ibv_event_type) to the context that owns the object.
void send_async_event(device::Fabric& fabric, std::uint32_t context, std::uint32_t type,
                      std::uint64_t element, std::atomic<std::uint32_t>* sent) noexcept;

// Puts a byte into the pipe of a channel of rdma_cm, whose process may be another, or gone.
void ring_channel(device::Fabric& fabric, std::uint32_t channel, std::uint32_t generation) noexcept;
// Takes all bytes from the pipe. Own channels only.
void silence_channel(std::uint32_t channel) noexcept;

// Removes the unread events of an object and returns their number. Own channels only.
std::uint32_t drain_events(device::Fabric& fabric, std::uint32_t channel,
                           std::uint64_t user_handle) noexcept;

bool is_event_fd(int fd) noexcept;           // a channel's read or write end of this process
bool is_internal_event_fd(int fd) noexcept;  // a write end of this process, or of a peer
void forget_events_after_fork() noexcept;

}  // namespace softhca::engine
