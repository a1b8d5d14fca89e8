// SPDX-License-Identifier: BSD-2-Clause
// Memory regions (kernel: ib_uverbs_reg_mr, mlx5_ib_reg_user_mr; access rules: ib_check_mr_access).
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/device/memory/mapped.h"
#include "softhca/device/own_memory.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/brief_regions.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/extents.h"
#include "softhca/uverbs/pinned.h"

namespace softhca::uverbs {

using device::MemoryRegion;
using device::QueueMemory;
namespace memory = device::memory;

namespace {

constexpr std::uint64_t kPageMask = 4095;
constexpr std::uint32_t kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// HUGETLB is a hint about the memory. Flags of the optional range may be ignored.
constexpr std::uint32_t kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | kRemoteWrites |
                                 IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND |
                                 IBV_ACCESS_OPTIONAL_RANGE;

int check_access(std::uint32_t access) noexcept {
    if (access & ~kKnown) return EINVAL;
    if ((access & kRemoteWrites) && !(access & IBV_ACCESS_LOCAL_WRITE)) return EINVAL;
    return 0;
}

int check_range(std::uint64_t start, std::uint64_t length, std::uint64_t iova) noexcept {
    if (!length || start + length < start || iova + length < iova) return EINVAL;
    if ((start & kPageMask) != (iova & kPageMask)) return EINVAL;
    return 0;
}

// On-demand paging pins and shares nothing. Each access goes through the page tables, and one
// region may span the whole address space.
bool on_demand(std::uint32_t access) noexcept { return access & IBV_ACCESS_ON_DEMAND; }
bool implicit(std::uint64_t start, std::uint64_t length, std::uint64_t iova) noexcept {
    return !start && !iova && length == ~0ull;
}

// Checks what the kernel finds out by pinning: that all of the range is mapped, and writable if the
// access needs it.
int probe(std::uint64_t start, std::uint64_t length, std::uint32_t access) noexcept {
    if (on_demand(access)) return 0;
    const bool writes = access & (IBV_ACCESS_LOCAL_WRITE | kRemoteWrites);
    return memory::check_mapped(start, length, writes) ? 0 : EFAULT;
}

// Pins the pages of a new region, and unpins them at the end unless keep() was called. On-demand
// memory has none.
struct Pinned {
    Pinned(device::Fabric& owner, std::uint64_t start, std::uint64_t bytes,
           std::uint32_t access) noexcept
        : fabric(owner), address(start), length(on_demand(access) ? 0 : bytes) {
        error = pin(fabric, address, length);
        if (error) length = 0;
    }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    ~Pinned() { unpin(fabric, address, length); }
    void keep() noexcept { length = 0; }

    device::Fabric& fabric;
    const std::uint64_t address;
    std::uint64_t length;
    int error;
};

void unpin_region(device::Fabric& fabric, const MemoryRegion& region) noexcept {
    if (region.device_memory == device::kNone && !on_demand(region.access))
        unpin(fabric, region.address, region.length);
}

BriefRegions brief_regions;

// A registration keeps its shared pages. Private pages are found by their address at each access.
memory::Purpose purpose_of(std::uint64_t address, std::uint32_t access) noexcept {
    static const bool pinned = options().device.has(DeviceTrait::kPinned);
    return pinned || access & kRemoteWrites ? memory::Purpose::kApplication
                                            : brief_regions.purpose(address);
}

int share_driver_memory(std::uint64_t address, std::uint64_t length, QueueMemory* out,
                        memory::Extents* extents) noexcept {
    SOFTHCA_ASSERT(out != nullptr && extents != nullptr);
    *out = {address, length, device::kNotShared};
    *extents = {};
    if (!length) return 0;
    // The device writes CQEs and doorbell records. Memory that cannot be shared is written by
    // copies.
    if (!memory::check_mapped(address, length, true)) return EFAULT;
    if (const int error = memory::share(address, length, memory::Purpose::kQueue, extents))
        return error;
    SOFTHCA_ASSERT(extents->count <= memory::kMaxExtents);
    if (!device::own_memory::add_queue(address, length)) {
        memory::release(*extents);
        *extents = {};
        return ENOMEM;
    }
    for (std::uint32_t i = 0; i < extents->count; ++i) {
        const memory::Extent& extent = extents->extent[i];
        if (address >= extent.address && address - extent.address < extent.length &&
            length <= extent.length - (address - extent.address))
            out->offset = extent.offset + (address - extent.address);
    }
    if (out->offset == device::kNotShared)
        LOG_INFO("cannot share the queue memory at 0x%llx (%llu bytes): peers reach it by copies",
                 static_cast<unsigned long long>(address), static_cast<unsigned long long>(length));
    return 0;
}

}  // namespace

bool keep_region(std::uint32_t index, std::uint64_t address, std::uint64_t length,
                 const memory::Extents& extents) noexcept {
    if (!device::own_memory::set_region(index, address, length)) return false;
    keep_extents(ObjectKind::kMr, index, {extents, {}, {}});
    return true;
}

void account_shared(device::Fabric& fabric, const memory::Extents& extents, bool add) noexcept {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < extents.count; ++i)
        bytes += extents.extent[i].length;
    auto& shared = fabric.self().shared_bytes;
    if (add)
        shared.fetch_add(bytes);
    else
        shared.fetch_sub(bytes);
}

int share_queue(Command& command, std::uint64_t address, std::uint64_t length, QueueMemory* out,
                memory::Extents* extents) noexcept {
    *out = {};
    if (const int error = pin(command.fabric(), address, length)) return error;
    const int error = share_driver_memory(address, length, out, extents);
    if (!error) return 0;
    unpin(command.fabric(), address, length);
    *out = {};
    return error;
}

int share_record(Command& command, std::uint64_t address, QueueMemory* out,
                 memory::Extents* extents) noexcept {
    *out = {};
    if (const int error = pin_record(command.context, address)) return error;
    const int error = share_driver_memory(address, 8, out, extents);
    if (!error) return 0;
    unpin_queue(command.context, {}, *out);
    *out = {};
    return error;
}

int reg_mr(Command& command) noexcept {
    ib_uverbs_reg_mr request;
    if (const int error = command.request(request)) return error;
    if (const int error = check_access(request.access_flags)) return error;
    if (!(on_demand(request.access_flags) &&
          implicit(request.start, request.length, request.hca_va)))
        if (const int error = check_range(request.start, request.length, request.hca_va))
            return error;
    device::ProtectionDomain* pd = device::find_own(command.segment().pds, command.fabric(),
                                                    command.context.record, request.pd_handle);
    if (!pd) return EINVAL;
    Pinned pinned(command.fabric(), request.start, request.length, request.access_flags);
    if (pinned.error) return pinned.error;
    if (const int error = probe(request.start, request.length, request.access_flags)) return error;
    std::uint32_t index;
    auto& table = command.segment().mrs;
    MemoryRegion* region =
        device::reserve(table, command.fabric(), command.context.record, device::kFirstMr, &index);
    if (!region) return ENOMEM;
    SOFTHCA_ASSERT(index >= device::kFirstMr && index < device::kMaxMrs);
    memory::Extents extents{};
    if (!on_demand(request.access_flags)) {
        if (const int error =
                memory::share(request.start, request.length,
                              purpose_of(request.start, request.access_flags), &extents)) {
            device::free_item(table, *region);
            return error;
        }
    }
    if (!keep_region(index, request.start, request.length, extents)) {
        memory::release(extents);
        device::free_item(table, *region);
        return ENOMEM;
    }
    pinned.keep();
    SOFTHCA_ASSERT(pinned.length == 0 && !pinned.error);
    account_shared(command.fabric(), extents, true);
    region->extents = extents;
    region->key = index << 8 | (region->head.generation & 0xff);
    region->pd = request.pd_handle;
    region->access = request.access_flags;
    region->device_memory = device::kNone;
    region->address = request.start;
    region->length = request.length;
    region->iova = request.hca_va;
    region->registered_at = device::now_ns();
    pd->users.fetch_add(1);
    device::publish(region->head);
    ib_uverbs_reg_mr_resp response{};
    response.mr_handle = index;
    response.lkey = response.rkey = region->key;
    return command.respond(response);
}

int rereg_mr(Command& command) noexcept {
    ib_uverbs_rereg_mr request;
    if (const int error = command.request(request)) return error;
    if (!request.flags ||
        (request.flags & ~std::uint32_t{IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
                                        IBV_REREG_MR_CHANGE_ACCESS}))
        return EINVAL;
    auto& segment = command.segment();
    MemoryRegion* region =
        device::find_own(segment.mrs, command.fabric(), command.context.record, request.mr_handle);
    if (!region || region->device_memory != device::kNone) return EINVAL;
    const bool translate = request.flags & IBV_REREG_MR_CHANGE_TRANSLATION;
    const bool change_pd = request.flags & IBV_REREG_MR_CHANGE_PD;
    const std::uint32_t access =
        request.flags & IBV_REREG_MR_CHANGE_ACCESS ? request.access_flags : region->access;
    if (const int error = check_access(access)) return error;
    device::ProtectionDomain* pd = nullptr;
    if (change_pd) {
        pd = device::find_own(segment.pds, command.fabric(), command.context.record,
                              request.pd_handle);
        if (!pd) return EINVAL;
    }
    const std::uint64_t start = translate ? request.start : region->address;
    const std::uint64_t length = translate ? request.length : region->length;
    if (translate)
        if (const int error = check_range(request.start, request.length, request.hca_va))
            return error;
    // The new pages are pinned in addition to the old ones (mlx5_ib_rereg_user_mr).
    const bool repins = translate || on_demand(access) != on_demand(region->access);
    Pinned pinned(command.fabric(), start, repins ? length : 0, access);
    if (pinned.error) return pinned.error;
    if (translate || (request.flags & IBV_REREG_MR_CHANGE_ACCESS))
        if (const int error = probe(start, length, access)) return error;
    memory::Extents extents{};
    if (translate && !on_demand(access))
        if (const int error = memory::share(start, length, memory::Purpose::kApplication, &extents))
            return error;
    SOFTHCA_ASSERT(!change_pd || pd != nullptr);
    // Before the record says so: an entry for too much is harmless, one for too little is not.
    QueueExtents old = take_extents(ObjectKind::kMr, request.mr_handle);
    region->head.state.store(device::kDying, std::memory_order_seq_cst);
    if (!device::epoch::synchronize()) {  // a stopped process may still use it
        memory::release(extents);
        keep_extents(ObjectKind::kMr, request.mr_handle, std::move(old));
        device::publish(region->head);
        return EAGAIN;
    }
    if (repins) unpin_region(command.fabric(), *region);
    pinned.keep();
    if (translate) {
        account_shared(command.fabric(), old.buffer, false);
        memory::release(old.buffer);
        old.buffer = region->extents = extents;
        account_shared(command.fabric(), extents, true);
        if (!device::own_memory::set_region(request.mr_handle, request.start, request.length))
            LOG_WARN("no memory: region 0x%x is reached where it is shared only", region->key);
        region->address = request.start;
        region->length = request.length;
        region->iova = request.hca_va;
    }
    keep_extents(ObjectKind::kMr, request.mr_handle, std::move(old));
    if (change_pd) {
        if (region->pd < device::kMaxPds) segment.pds[region->pd].users.fetch_sub(1);
        region->pd = request.pd_handle;
        pd->users.fetch_add(1);
    }
    region->access = access;
    ++region->head.generation;  // a cached lookup is repeated (engine/spans.h, Reach)
    // A key from before the change is not valid any more, as after mlx5's UMR.
    if (translate) region->key = (region->key & ~0xffu) | ((region->key + 1) & 0xff);
    device::publish(region->head);
    ib_uverbs_rereg_mr_resp response{};
    response.lkey = response.rkey = region->key;
    return command.respond(response);
}

void free_mr(DeviceContext& context, std::uint32_t index) noexcept {
    auto& segment = context.fabric->segment();
    SOFTHCA_ASSERT(index < device::kMaxMrs && context.fabric != nullptr);
    MemoryRegion& region = segment.mrs[index];
    std::uint32_t live = device::kLive;
    if (!region.head.state.compare_exchange_strong(live, device::kDying)) return;
    const bool quiet = device::epoch::synchronize();
    const QueueExtents extents = take_extents(ObjectKind::kMr, index);
    account_shared(*context.fabric, extents.buffer, false);
    unpin_region(*context.fabric, region);
    if (region.pd < device::kMaxPds) segment.pds[region.pd].users.fetch_sub(1);
    if (region.device_memory == device::kNone && !(region.access & kRemoteWrites))
        brief_regions.ended(region.address, device::now_ns() - region.registered_at);
    if (!quiet) return;  // a stopped process may still write: its pages and key are not reused
    memory::release(extents.buffer);
    device::own_memory::remove_region(index);
    if (region.device_memory < device::kMemicPages)
        segment.dms[region.device_memory].users.fetch_sub(1);
    device::free_item(segment.mrs, region);
}

int dereg_mr(Command& command) noexcept {
    ib_uverbs_dereg_mr request;
    if (const int error = command.request(request)) return error;
    if (!device::find_own(command.segment().mrs, command.fabric(), command.context.record,
                          request.mr_handle))
        return ENOENT;
    free_mr(command.context, request.mr_handle);
    return 0;
}

}  // namespace softhca::uverbs
