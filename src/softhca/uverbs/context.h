// SPDX-License-Identifier: BSD-2-Clause
// An open device, which corresponds to the kernel's ucontext. Its record in the fabric holds what
// other processes need; this object holds the rest.
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

// Where an allocation of device memory lies. Any member of the fabric may write to the segment, so
// the owner keeps here the pages, offset and address by which it maps, empties and unmaps.
struct DeviceMemoryPlace {
    std::uint32_t pages = 0;
    std::uint64_t length = 0;
    std::uint64_t offset = 0;   // in this process's arena
    std::uint64_t address = 0;  // in this address space: maps `offset`, or is copied from it
    MemicView view = MemicView::kUndecided;

    std::uint64_t bytes() const noexcept { return std::uint64_t{pages} * device::kMemicPageBytes; }
};

// What a firmware command has made (devx.h).
struct FirmwareObject {
    enum class Kind : std::uint8_t { kMkey, kReservedNumber, kAddressMapping } kind;
    std::uint32_t index;  // in the table of its kind
};

struct DeviceContext {
    device::Fabric* fabric = nullptr;
    unsigned device = 0;  // which of the fabric's
    ino_t inode = 0;      // of the command descriptor's file
    dev_t file_system = 0;
    std::uint32_t record = device::kNone;  // index in Segment.contexts; kNone before GET_CONTEXT
    std::uint32_t async_channel = device::kNone;
    // The channel's descriptor, from GET_CONTEXT by its method until ASYNC_EVENT_ALLOC takes it.
    // -1: taken, or not opened that way.
    int async_fd = -1;
    bool inherited = false;                                // through fork: see give_record()
    engine::BlueFlameUse blueflame_use = engine::kForAll;  // libmlx5's, by its variables
    bool is_static = false;                                // UARs as in 2018: see uar.h
    bool takes_commands = false;                           // firmware commands: see devx.h
    std::uint8_t cqe_version = 0;
    std::uint32_t total_bfregs = 0, low_latency_bfregs = 0;

    // Under mutex:
    std::mutex mutex;
    int descriptors = 1;  // number of descriptors of the command file
    bool imported = false;
    std::vector<std::uint32_t> static_pages;                   // in Segment.uars
    std::vector<std::uint32_t> bfreg_users;                    // number of QPs on each static bfreg
    std::vector<std::uint32_t> dynamic_pages;                  // of ALLOC_WC, in Segment.uars
    std::map<std::uint64_t, std::uint32_t> record_pages;       // doorbell records on each page
    std::map<std::uint32_t, DeviceMemoryPlace> device_memory;  // by index in Segment.dms
    std::map<std::uint32_t, FirmwareObject> firmware_objects;  // by handle
    std::uint32_t last_firmware_object = 0;
    std::set<std::uint32_t> address_handles;
    std::uint32_t last_address_handle = 0;
    std::uint32_t qp_uar_pages = 0;  // that libmlx5 allocated for QPs: engine/driver_locks.h
};

// The context behind a command descriptor of this process. Empty if there is none.
std::shared_ptr<DeviceContext> find_context(int fd) noexcept;

// A descriptor of this process that refers to the context's command file, or -1.
int descriptor_of(const DeviceContext& context) noexcept;

// Gives a forked child's descriptor a record of the child's own. A child has no share in its
// parent's device, so a command descriptor that it inherited answers EIO. Two uses are allowed,
// because rdma-core's tests need them: querying the device, and allocating its memory. What the
// child allocates belongs to this record. Returns 0 or an errno.
int give_record(DeviceContext& context) noexcept;

// Fills in the driver's part of the response of GET_CONTEXT and QUERY_CONTEXT.
void fill_context_response(const DeviceContext& context,
                           struct ::mlx5_ib_alloc_ucontext_resp* out) noexcept;

// Frees everything that the context owns, when its last descriptor is closed.
void destroy_context(DeviceContext& context) noexcept;

}  // namespace softhca::uverbs
