// SPDX-License-Identifier: BSD-2-Clause
// UARs: see uar.h. They are pages of the command descriptor's memfd. Nothing reads what programs
// write to them, except that the doorbell hook tells a BlueFlame write from a doorbell.
#include "softhca/uverbs/uar.h"

#include <errno.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>
#include <time.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/clock.h"
#include "softhca/device/table.h"
#include "softhca/engine/counters.h"
#include "softhca/engine/driver_locks.h"
#include "softhca/uverbs/device_memory.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::uverbs {

using device::kNone;
using device::UarKind;
using device::UarPage;

namespace {

constexpr std::uint32_t kUarPage = device::kUarPageBytes;

// Clears the registers of a page, as if no doorbell had ever been rung: see softhca_doorbell().
void clear_registers(int fd, std::uint64_t offset) noexcept {
    for (const std::uint32_t at : {0x800u, 0x900u, 0xa00u, 0xb00u}) {
        const std::uint64_t untouched = engine::kUntouchedRegister;
        libc::pwrite(fd, &untouched, sizeof untouched, static_cast<off_t>(offset + at + 8));
    }
}

int take_page(DeviceContext& context, UarKind kind, std::uint32_t* page) noexcept {
    device::Segment& segment = context.fabric->segment();
    UarPage* uar =
        device::reserve(segment.uars, *context.fabric, context.record, device::kFirstUar, page);
    if (!uar) {
        LOG_INFO("all %u UAR pages of the device are in use", device::kMaxUarPages - 1);
        return ENOMEM;
    }
    uar->kind = static_cast<std::uint32_t>(kind);
    uar->extended_index = kNone;
    device::publish(uar->head);
    return 0;
}

void give_page(DeviceContext& context, std::uint32_t page) noexcept {
    auto& table = context.fabric->segment().uars;
    if (UarPage* uar = device::find_own(table, *context.fabric, context.record, page))
        device::free_item(table, *uar);
}

// The mmap offset of the static policy is command << 8 | index, and the index's upper part lies
// above (get_index and get_extended_index of the kernel's mlx5_ib).
struct MapRequest {
    std::uint32_t command, index;
};
MapRequest decode_offset(std::uint64_t page) noexcept {
    return {static_cast<std::uint32_t>(page >> 8 & 0xff),
            static_cast<std::uint32_t>((page & 0xff) | (page >> 16 << 8))};
}

// Writes how completion timestamps convert to wall-clock time (struct mlx5_ib_clock_info;
// mlx5dv_ts_to_ns).
void write_clock_info(DeviceContext& context, int fd, std::uint64_t offset) noexcept {
    mlx5_ib_clock_info info{};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    info.nsec = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                static_cast<std::uint64_t>(now.tv_nsec);
    info.cycles = device::counter_to_ns(device::counter(), context.fabric->segment().clock_factor);
    info.mult = 1;
    info.mask = ~0ull;
    libc::pwrite(fd, &info, sizeof info, static_cast<off_t>(offset));
}

device::Context* record_of(DeviceContext& context) noexcept {
    return context.record == kNone ? nullptr : &context.fabric->segment().contexts[context.record];
}

// The kernel's order: first the high class, one QP each; then the medium class, least used first;
// then the bfreg without BlueFlame (first_hi_bfreg, alloc_high_class_bfreg, alloc_med_class_bfreg).
std::uint32_t static_bfreg(DeviceContext& context) noexcept {
    auto& users = context.bfreg_users;
    const std::uint32_t total = context.total_bfregs;
    SOFTHCA_ASSERT(total == users.size() && context.low_latency_bfregs < total);
    const std::uint32_t medium = total - context.low_latency_bfregs - 1;
    const std::uint32_t first_high = medium + 1;
    for (std::uint32_t i = first_high; i < total; ++i)
        if (!users[i]) return ++users[i], i;
    if (medium == 0) return ++users[0], 0;
    std::uint32_t least = 1;
    for (std::uint32_t i = 1; i < first_high && users[least]; ++i)
        if (users[i] < users[least]) least = i;
    return ++users[least], least;
}

}  // namespace

std::uint64_t command_fd_bytes() noexcept {
    return (kObjectPages + device::kMaxUarPages) * kUarPage;
}

int alloc_uar(DeviceContext& context, std::uint32_t type, UarObject* out) noexcept {
    if (context.is_static || context.record == kNone) return EPROTONOSUPPORT;
    if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
        return EOPNOTSUPP;
    const bool nc = type == MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
    if (const int error =
            take_page(context, nc ? UarKind::kNonCached : UarKind::kBlueFlame, &out->page))
        return error;
    device::Context* record = record_of(context);
    (nc ? record->nc_uars : record->dynamic_uars).fetch_add(1);
    {
        std::lock_guard<std::mutex> guard(context.mutex);
        const bool for_qps = !nc && engine::is_page_for_qps();
        engine::note_uar_page(out->page, for_qps, context.qp_uar_pages);
        context.qp_uar_pages += for_qps;
    }
    out->length = kUarPage;
    out->mmap_offset = (kObjectPages + out->page) * kUarPage;
    return 0;
}

int free_uar(DeviceContext& context, std::uint32_t page) noexcept {
    auto& table = context.fabric->segment().uars;
    UarPage* uar = device::find_own(table, *context.fabric, context.record, page);
    if (!uar || uar->kind > static_cast<std::uint32_t>(UarKind::kNonCached)) return ENOENT;
    if (uar->users[0].load() || uar->users[1].load()) return EBUSY;
    const bool nc = uar->kind == static_cast<std::uint32_t>(UarKind::kNonCached);
    device::Context* record = record_of(context);
    (nc ? record->nc_uars : record->dynamic_uars).fetch_sub(1);
    give_page(context, page);
    return 0;
}

int alloc_static_uars(DeviceContext& context) noexcept {
    const std::uint32_t pages = context.total_bfregs / device::kUuarsPerUar;
    SOFTHCA_ASSERT(context.static_pages.empty() &&
                   context.total_bfregs % device::kUuarsPerUar == 0);
    context.bfreg_users.assign(context.total_bfregs, 0);
    for (std::uint32_t i = 0; i < pages; ++i) {
        std::uint32_t page;
        if (const int error = take_page(context, UarKind::kStatic, &page)) {
            for (const std::uint32_t taken : context.static_pages)
                give_page(context, taken);
            context.static_pages.clear();
            return error;
        }
        context.static_pages.push_back(page);
    }
    return 0;
}

int place_qp(DeviceContext& context, std::uint32_t flags, std::uint32_t bfreg_index,
             Placement* out) noexcept {
    auto& table = context.fabric->segment().uars;
    *out = {kNone, 0, 0xffffffffu, kNone, false};
    std::lock_guard<std::mutex> guard(context.mutex);
    if (flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) {  // libmlx5 has chosen the page
        const UarPage* uar = device::find_own(table, *context.fabric, context.record, bfreg_index);
        if (!uar) return EINVAL;
        out->page = bfreg_index;
        out->blueflame = uar->kind == static_cast<std::uint32_t>(UarKind::kBlueFlame);
        return 0;
    }
    if (!context.is_static) return EINVAL;
    if (flags & MLX5_QP_FLAG_BFREG_INDEX) {  // a thread domain's own page
        for (const std::uint32_t page : context.dynamic_pages) {
            if (table[page].extended_index != bfreg_index / device::kUuarsPerUar) continue;
            out->page = page;
            out->uuar = bfreg_index % device::kUuarsPerUar;
            out->blueflame = true;
            return 0;
        }
        // The thread domain's mmap bypassed us (some libraries patch mmap itself), so the page is
        // allocated here. It lives as long as the context.
        if (bfreg_index / device::kUuarsPerUar >= device::kMaxDynamicUars) return EINVAL;
        if (const int error = take_page(context, UarKind::kAllocWc, &out->page)) return error;
        table[out->page].extended_index = bfreg_index / device::kUuarsPerUar;
        record_of(context)->dynamic_uars.fetch_add(1);
        context.dynamic_pages.push_back(out->page);
        out->uuar = bfreg_index % device::kUuarsPerUar;
        out->blueflame = true;
        return 0;
    }
    if (context.static_pages.empty()) return EINVAL;
    const std::uint32_t bfreg = static_bfreg(context);
    SOFTHCA_ASSERT(bfreg / device::kUuarsPerUar < context.static_pages.size());
    out->bfreg = bfreg;
    out->page = context.static_pages[bfreg / device::kUuarsPerUar];
    out->uuar = bfreg % device::kUuarsPerUar;
    out->blueflame = bfreg != 0;
    // libmlx5 numbers four registers a page, two of which are for the fast path.
    out->answer = bfreg / 2 * 4 + bfreg % 2;
    return 0;
}

void unplace_qp(DeviceContext& context, std::uint32_t bfreg) noexcept {
    std::lock_guard<std::mutex> guard(context.mutex);
    if (bfreg == kNone) return;
    SOFTHCA_ASSERT(bfreg < context.bfreg_users.size() && context.bfreg_users[bfreg] > 0);
    --context.bfreg_users[bfreg];
}

void* map(int fd, void* address, std::size_t length, int prot, int flags, off_t offset) noexcept {
    const auto fail = [](int error) {
        errno = error;
        return MAP_FAILED;
    };
    const std::shared_ptr<DeviceContext> found = find_context(fd);
    if (!found) return fail(EIO);
    DeviceContext& context = *found;
    const std::uint64_t page = static_cast<std::uint64_t>(offset) / kUarPage;
    if (context.record == kNone || offset % kUarPage || (prot & PROT_EXEC)) return fail(EINVAL);
    if (page < kObjectPages && decode_offset(page).command == MLX5_IB_MMAP_DEVICE_MEM)
        return map_device_memory(context, decode_offset(page).index,
                                 {address, length, prot, flags, fd, offset});
    if (length != kUarPage) return fail(EINVAL);
    auto& table = context.fabric->segment().uars;
    std::uint32_t dynamic_page = kNone;
    std::lock_guard<std::mutex> guard(context.mutex);
    if (page >= kObjectPages) {
        if (page - kObjectPages >= device::kMaxUarPages ||
            !device::find_own(table, *context.fabric, context.record,
                              static_cast<std::uint32_t>(page - kObjectPages)))
            return fail(EINVAL);
    } else {
        const MapRequest request = decode_offset(page);
        switch (request.command) {
            case MLX5_IB_MMAP_REGULAR_PAGE:
            case MLX5_IB_MMAP_WC_PAGE:
            case MLX5_IB_MMAP_NC_PAGE:
                if (request.index >= context.static_pages.size()) return fail(EINVAL);
                break;
            case MLX5_IB_MMAP_ALLOC_WC: {
                // An older kernel does not have the command.
                if (options().device.has(DeviceTrait::kNoThreadDomains)) return fail(EINVAL);
                if (!context.is_static) return fail(EINVAL);
                if (request.index >= device::kMaxDynamicUars ||
                    context.dynamic_pages.size() >= device::kMaxDynamicUars) {
                    LOG_INFO("a context has at most %u dynamic UARs", device::kMaxDynamicUars);
                    return fail(ENOMEM);
                }
                for (const std::uint32_t known : context.dynamic_pages)
                    if (table[known].extended_index == request.index) return fail(EINVAL);
                if (const int error = take_page(context, UarKind::kAllocWc, &dynamic_page))
                    return fail(error);
                table[dynamic_page].extended_index = request.index;
                record_of(context)->dynamic_uars.fetch_add(1);
                break;
            }
            case MLX5_IB_MMAP_CLOCK_INFO:
                if (request.index != MLX5_IB_CLOCK_INFO_V1 || (prot & PROT_WRITE))
                    return fail(EINVAL);
                write_clock_info(context, fd, static_cast<std::uint64_t>(offset));
                return libc::mmap(address, length, prot, flags, fd, offset);
            default:
                return fail(EINVAL);
        }
    }
    // Write-only MAP_SHARED pages of a device are readable in softhca.
    void* at = libc::mmap(address, length, prot | PROT_READ, flags, fd, offset);
    if (at == MAP_FAILED) {
        const int error = errno;
        if (dynamic_page != kNone) {
            record_of(context)->dynamic_uars.fetch_sub(1);
            give_page(context, dynamic_page);
        }
        return fail(error);
    }
    SOFTHCA_ASSERT(dynamic_page == kNone || dynamic_page < device::kMaxUarPages);
    clear_registers(fd, static_cast<std::uint64_t>(offset));
    if (dynamic_page != kNone) {
        context.dynamic_pages.push_back(dynamic_page);
        SOFTHCA_ASSERT(context.dynamic_pages.size() <= device::kMaxDynamicUars);
    }
    return at;
}

}  // namespace softhca::uverbs
