// SPDX-License-Identifier: BSD-2-Clause
// Allocates, maps, registers and frees device memory: see device_memory.h.
#include "softhca/uverbs/device_memory.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/missing.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/uar.h"

namespace softhca::uverbs {

using device::DeviceMemory;
using device::kMemicBytes;
using device::kMemicPageBytes;
using device::kMemicPages;
using device::kNone;
namespace memory = device::memory;

namespace {

constexpr std::uint32_t kGranule = 64;        // bytes; the device rounds lengths up to it
constexpr std::uint32_t kMostAlignment = 12;  // log2: allocations begin on pages
constexpr std::uint32_t kAllowedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                         IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;

struct Found {
    DeviceMemory* record = nullptr;
    DeviceMemoryPlace* place = nullptr;
    explicit operator bool() const noexcept { return record != nullptr; }
};

// The caller holds the context's mutex.
Found find(DeviceContext& context, std::uint64_t handle) noexcept {
    const auto known = context.device_memory.find(static_cast<std::uint32_t>(handle));
    if (handle >= kMemicPages || known == context.device_memory.end()) return {};
    DeviceMemory* const record = device::find_own(context.fabric->segment().dms, *context.fabric,
                                                  context.record, known->first);
    return record ? Found{record, &known->second} : Found{};
}

// The first run of free pages that is long enough, or kNone. The caller holds the table's lock.
std::uint32_t find_pages(const device::Segment& segment, std::uint32_t pages) noexcept {
    SOFTHCA_ASSERT(pages > 0 && pages <= kMemicPages);
    std::uint32_t start = 0;  // the pages from here to `at` are free
    for (std::uint32_t at = 0; at < kMemicPages;) {
        const DeviceMemory& dm = segment.dms[at];
        if (dm.head.state.load(std::memory_order_acquire) == device::kFree) {
            if (++at - start == pages) return start;
        } else {
            // At least one page is in use: the owner may have died before it wrote the number.
            at += std::clamp(dm.pages, 1u, kMemicPages);
            start = at;
        }
    }
    return kNone;
}

DeviceMemory* take_pages(DeviceContext& context, std::uint32_t pages,
                         std::uint32_t* index) noexcept {
    auto& table = context.fabric->segment().dms;
    if (!table.lock.lock()) return nullptr;
    DeviceMemory* dm = nullptr;
    const std::uint32_t start = find_pages(context.fabric->segment(), pages);
    if (start != kNone) {
        SOFTHCA_ASSERT(start + pages <= kMemicPages);
        table.cursor = start;
        dm = device::reserve_locked(table, *context.fabric, context.record, 0, index);
        if (dm) dm->pages = pages;
    }
    table.lock.unlock();
    return dm;
}

// The offset in its arena of this process's window on device memory, which has room for every page
// of the device; memory lies only at pages in use.
std::atomic<std::uint64_t> g_window{memory::kNoOffset};

// This process's window, which the first call allocates. kNoOffset if the arena is full.
std::uint64_t window() noexcept {
    std::uint64_t known = g_window.load(std::memory_order_acquire);
    if (known != memory::kNoOffset) return known;
    const std::uint64_t made = memory::arena_allocate(kMemicBytes);
    if (made == memory::kNoOffset || g_window.compare_exchange_strong(known, made)) return made;
    memory::arena_free(made, kMemicBytes);  // another thread was first
    return known;
}

int alloc(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t length = 0, alignment = 0, type = MLX5_IB_UAPI_DM_TYPE_MEMIC;
    int error = attributes.value(UVERBS_ATTR_ALLOC_DM_LENGTH, &length);
    if (!error) error = attributes.value(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment);
    if (error) return error;
    if (attributes.find(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE))
        attributes.value(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, &type);
    if (type != MLX5_IB_UAPI_DM_TYPE_MEMIC)
        return missing(EOPNOTSUPP, "device memory for flow steering");
    if (!length || static_cast<std::uint32_t>(alignment) > kMostAlignment) return EINVAL;
    if (length > kMemicBytes) return ENOMEM;
    const auto pages = static_cast<std::uint32_t>((length + kMemicPageBytes - 1) / kMemicPageBytes);
    const std::uint64_t start = window();
    if (start == memory::kNoOffset) return ENOMEM;
    std::uint32_t index;
    DeviceMemory* dm = take_pages(context, pages, &index);
    // Device memory is scarce, so the pages of killed processes are reclaimed at once.
    if (!dm && context.fabric->reclaim_dead()) dm = take_pages(context, pages, &index);
    if (!dm) {
        LOG_INFO("the device has no %u contiguous free pages of memory left", pages);
        return ENOMEM;
    }
    SOFTHCA_ASSERT(start % kMemicPageBytes == 0);
    dm->length = length;
    DeviceMemoryPlace place{pages, length, start + std::uint64_t{index} * kMemicPageBytes};
    place.address = reinterpret_cast<std::uintptr_t>(memory::arena_base()) + place.offset;
    try {
        const std::lock_guard<std::mutex> guard(context.mutex);
        context.device_memory.insert_or_assign(index, place);
    } catch (const std::bad_alloc&) {
        device::free_item(context.fabric->segment().dms, *dm);
        return ENOMEM;
    }
    device::publish(dm->head);
    const std::uint64_t in_page = 0;
    error = attributes.put(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, in_page);
    if (!error)
        error = attributes.put(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
                               static_cast<std::uint16_t>(index));
    if (!error) error = attributes.put_handle(UVERBS_ATTR_ALLOC_DM_HANDLE, index);
    if (error) free_device_memory(context, index);
    return error;
}

int query(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t handle;
    if (const int error = attributes.value(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, &handle)) return error;
    std::lock_guard<std::mutex> guard(context.mutex);
    const Found dm = find(context, handle);
    if (!dm) return ENOENT;
    const std::uint64_t in_page = 0;
    const std::uint64_t length = (dm.place->length + kGranule - 1) / kGranule * kGranule;
    int error = attributes.put(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, in_page);
    if (!error)
        error = attributes.put(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
                               static_cast<std::uint16_t>(handle));
    if (!error) error = attributes.put(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, length);
    return error;
}

// Makes the pages of the descriptor's own file, at the mmap offset, the device memory. The caller
// holds the context's mutex.
int view_descriptor(DeviceContext& context, std::uint32_t index, DeviceMemoryPlace& dm) noexcept {
    SOFTHCA_ASSERT(index < kMemicPages);
    const std::uint64_t page = (index & 0xff) | MLX5_IB_MMAP_DEVICE_MEM << 8;
    void* at = libc::mmap(nullptr, dm.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                          descriptor_of(context), static_cast<off_t>(page * kMemicPageBytes));
    if (at == MAP_FAILED) return ENOMEM;
    LOG_INFO("a mapping of device memory was not seen: peers reach it by copies");
    dm.address = reinterpret_cast<std::uintptr_t>(at);
    dm.view = MemicView::kDescriptor;
    return 0;
}

}  // namespace

void forget_device_memory_after_fork() noexcept {
    g_window.store(memory::kNoOffset, std::memory_order_release);
}

int free_device_memory(DeviceContext& context, std::uint32_t index) noexcept {
    std::lock_guard<std::mutex> guard(context.mutex);
    const Found dm = find(context, index);
    if (!dm) return ENOENT;
    // A region is freed when nobody can use it any more. So without regions nobody can use the
    // memory.
    if (dm.record->users.load()) return EBUSY;
    if (dm.place->view == MemicView::kDescriptor)
        libc::munmap(reinterpret_cast<void*>(static_cast<std::uintptr_t>(dm.place->address)),
                     dm.place->bytes());
    else
        memory::arena_empty(dm.place->offset, dm.place->bytes());
    context.device_memory.erase(index);
    device::free_item(context.fabric->segment().dms, *dm.record);
    return 0;
}

void* map_device_memory(DeviceContext& context, std::uint32_t index,
                        const Mapping& mapping) noexcept {
    std::lock_guard<std::mutex> guard(context.mutex);
    DeviceMemoryPlace* const dm = find(context, index).place;
    if (!dm || mapping.length != dm->bytes() || (mapping.flags & MAP_TYPE) == MAP_PRIVATE) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (dm->view != MemicView::kDescriptor) {
        void* at = memory::arena_map_own(mapping.address, mapping.length, mapping.prot,
                                         mapping.flags, dm->offset);
        if (at != MAP_FAILED) dm->view = MemicView::kArena;
        if (at != MAP_FAILED || dm->view == MemicView::kArena) return at;
    }
    return libc::mmap(mapping.address, mapping.length, mapping.prot, mapping.flags, mapping.fd,
                      mapping.offset);
}

int reg_dm_mr(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t dm_handle = 0, pd_handle = 0, offset = 0, length = 0, access = 0;
    int error = attributes.value(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, &dm_handle);
    if (!error) error = attributes.value(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, &pd_handle);
    if (!error) error = attributes.value(UVERBS_ATTR_REG_DM_MR_OFFSET, &offset);
    if (!error) error = attributes.value(UVERBS_ATTR_REG_DM_MR_LENGTH, &length);
    if (!error) error = attributes.value(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access);
    if (error) return error;
    const auto flags = static_cast<std::uint32_t>(access);
    if ((flags & ~kAllowedAccess) || !(flags & IBV_ACCESS_ZERO_BASED)) return EINVAL;
    if ((flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(flags & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    device::Fabric& fabric = *context.fabric;
    device::Segment& segment = fabric.segment();
    std::lock_guard<std::mutex> guard(context.mutex);
    device::ProtectionDomain* pd = device::find_own(segment.pds, fabric, context.record,
                                                    static_cast<std::uint32_t>(pd_handle));
    const Found found = find(context, dm_handle);
    if (!pd || !found) return ENOENT;
    DeviceMemoryPlace* const dm = found.place;
    if (offset > dm->length || length > dm->length - offset) return EINVAL;
    if (dm->view == MemicView::kUndecided)
        if ((error = view_descriptor(context, static_cast<std::uint32_t>(dm_handle), *dm)))
            return error;
    memory::Extents extents{};
    if (dm->view == MemicView::kArena) {
        extents.count = 1;
        extents.complete = true;
        extents.extent[0] = {dm->address, dm->bytes(), dm->offset};
    }
    std::uint32_t index;
    device::MemoryRegion* region =
        device::reserve(segment.mrs, fabric, context.record, device::kFirstMr, &index);
    if (!region) return ENOMEM;
    if (!keep_region(index, dm->address + offset, length, extents)) {
        device::free_item(segment.mrs, *region);
        return ENOMEM;
    }
    account_shared(fabric, extents, true);
    region->extents = extents;
    region->key = index << 8 | (region->head.generation & 0xff);
    region->pd = static_cast<std::uint32_t>(pd_handle);
    region->access = flags;
    region->device_memory = static_cast<std::uint32_t>(dm_handle);
    region->address = dm->address + offset;
    region->length = length;
    region->iova = 0;
    pd->users.fetch_add(1);
    found.record->users.fetch_add(1);
    device::publish(region->head);
    error = attributes.put(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, region->key);
    if (!error) error = attributes.put(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, region->key);
    if (!error) error = attributes.put_handle(UVERBS_ATTR_REG_DM_MR_HANDLE, index);
    if (error) free_mr(context, index);
    return error;
}

int device_memory_method(DeviceContext& context, unsigned method,
                         const Attributes& attributes) noexcept {
    switch (method) {
        case UVERBS_METHOD_DM_ALLOC:
            return alloc(context, attributes);
        case UVERBS_METHOD_DM_FREE: {
            std::uint64_t handle;
            if (const int error = attributes.value(UVERBS_ATTR_FREE_DM_HANDLE, &handle))
                return error;
            return handle < kMemicPages
                       ? free_device_memory(context, static_cast<std::uint32_t>(handle))
                       : ENOENT;
        }
        case MLX5_IB_METHOD_DM_QUERY:
            return query(context, attributes);
        case MLX5_IB_METHOD_DM_MAP_OP_ADDR:
            return missing(EOPNOTSUPP, "operations on device memory other than read and write");
        default:
            return EPROTONOSUPPORT;
    }
}

}  // namespace softhca::uverbs
