// SPDX-License-Identifier: BSD-2-Clause
// An open device: what the kernel keeps in a ucontext. Its record in the fabric holds what others
// need to see; this holds the rest.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "softhca/device/fabric.h"
#include "softhca/engine/doorbell_count.h"

struct mlx5_ib_alloc_ucontext_resp;

namespace softhca::uverbs {

// Which pages a program sees when it maps its device memory (device_memory.h).
enum class MemicView : std::uint32_t { kUndecided, kArena, kDescriptor };

// Where a piece of device memory is. Any member of the fabric may write to the segment, so what the
// owner unmaps, empties and maps by is kept here.
struct DeviceMemoryPlace {
    std::uint32_t pages = 0;
    std::uint64_t length = 0;
    std::uint64_t offset = 0;   // in the own arena
    std::uint64_t address = 0;  // in the own address space: what is at `offset`, or what is copied
    MemicView view = MemicView::kUndecided;

    std::uint64_t bytes() const noexcept { return std::uint64_t{pages} * device::kMemicPageBytes; }
};

struct DeviceContext {
    device::Fabric* fabric = nullptr;
    ino_t inode = 0;  // of the command descriptor
    dev_t file_system = 0;
    std::uint32_t record = device::kNone;  // index in Segment.contexts; kNone before GET_CONTEXT
    std::uint32_t async_channel = device::kNone;
    // Of that channel, from GET_CONTEXT by its method until ASYNC_EVENT_ALLOC takes it; -1: taken.
    int async_fd = -1;
    bool inherited = false;                                // over fork: see give_record()
    engine::BlueFlameUse blueflame_use = engine::kForAll;  // by libmlx5, as its variables say
    bool is_static = false;                                // the kernel of 2018: see uar.h
    std::uint8_t cqe_version = 0;
    std::uint32_t total_bfregs = 0, low_latency_bfregs = 0;

    // under mutex
    std::mutex mutex;
    int descriptors = 1;  // this one and its duplicates
    bool imported = false;
    std::vector<std::uint32_t> static_pages;                   // in Segment.uars
    std::vector<std::uint32_t> bfreg_users;                    // QPs on each static bfreg
    std::vector<std::uint32_t> dynamic_pages;                  // of ALLOC_WC, in Segment.uars
    std::map<std::uint64_t, std::uint32_t> record_pages;       // doorbell records on each page
    std::map<std::uint32_t, DeviceMemoryPlace> device_memory;  // by index in Segment.dms
    std::set<std::uint32_t> address_handles;
    std::uint32_t last_address_handle = 0;
};

// The context behind a command descriptor of this process; empty when there is none.
std::shared_ptr<DeviceContext> find_context(int fd) noexcept;

// A descriptor of this process that refers to the context's command file; -1 when there is none
// left.
int descriptor_of(const DeviceContext& context) noexcept;

// A forked child has no share in its parent's device, and a command descriptor that it inherited
// answers EIO; but the device may be queried and its memory allocated through it, as rdma-core's
// tests do. Then the descriptor gets a record of the child's own, to which belongs what is
// allocated. 0 or an errno.
int give_record(DeviceContext& context) noexcept;

// What GET_CONTEXT and QUERY_CONTEXT say of it (the driver's part).
void fill_context_response(const DeviceContext& context,
                           struct ::mlx5_ib_alloc_ucontext_resp* out) noexcept;

// Frees everything the context owns: what closing the last descriptor does.
void destroy_context(DeviceContext& context) noexcept;

}  // namespace softhca::uverbs
