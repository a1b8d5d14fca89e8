// SPDX-License-Identifier: BSD-2-Clause
// Counts pinned pages: see pinned.h.
#include "softhca/uverbs/pinned.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint64_t kPageShift = 12, kPage = 1 << kPageShift;

// The number of pages, as ib_umem_num_pages.
std::uint64_t pages_of(std::uint64_t address, std::uint64_t length) noexcept {
    if (length == 0) return 0;
    return ((address + length - 1) >> kPageShift) - (address >> kPageShift) + 1;
}

// capable(CAP_IPC_LOCK) asks for the capability in the initial user namespace, whatever the process
// may do in its own.
bool may_lock_any() noexcept {
    constexpr ino_t kFirstUserNamespace = 0xefff'fffd;  // PROC_USER_INIT_INO, linux/proc_ns.h
    struct stat own {};
    if (libc::stat("/proc/self/ns/user", &own) == 0 && own.st_ino != kFirstUserNamespace)
        return false;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capget, &header, data) != 0) return false;
    return data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

}  // namespace

int pin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept {
    const std::uint64_t pages = pages_of(address, length);
    if (pages == 0) return 0;
    auto& pinned = fabric.self().pinned_pages;
    const std::uint64_t now = pinned.fetch_add(pages, std::memory_order_relaxed) + pages;
    if (options().memlock == MemlockPolicy::kIgnore) return 0;
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
    // can_do_mlock(): with a limit of 0 the result is EPERM.
    if (limit.rlim_cur != 0 && now <= limit.rlim_cur >> kPageShift) return 0;
    if (may_lock_any()) return 0;
    pinned.fetch_sub(pages, std::memory_order_relaxed);
    LOG_INFO("pinning %llu pages in addition to %llu exceeds RLIMIT_MEMLOCK (%llu KiB)",
             static_cast<unsigned long long>(pages), static_cast<unsigned long long>(now - pages),
             static_cast<unsigned long long>(limit.rlim_cur >> 10));
    return limit.rlim_cur == 0 ? EPERM : ENOMEM;
}

void unpin(device::Fabric& fabric, std::uint64_t address, std::uint64_t length) noexcept {
    fabric.self().pinned_pages.fetch_sub(pages_of(address, length), std::memory_order_relaxed);
}

int pin_record(DeviceContext& context, std::uint64_t address) noexcept {
    const std::uint64_t page = address & ~(kPage - 1);
    std::lock_guard<std::mutex> guard(context.mutex);
    try {
        std::uint32_t& users = context.record_pages[page];
        if (users == 0)
            if (const int error = pin(*context.fabric, page, kPage)) {
                context.record_pages.erase(page);
                return error;
            }
        SOFTHCA_ASSERT(users < ~std::uint32_t{0});
        ++users;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    return 0;
}

void unpin_queue(DeviceContext& context, const device::QueueMemory& buffer,
                 const device::QueueMemory& record) noexcept {
    unpin(*context.fabric, buffer.address, buffer.length);
    if (record.length == 0) return;
    const std::uint64_t page = record.address & ~(kPage - 1);
    std::lock_guard<std::mutex> guard(context.mutex);
    const auto at = context.record_pages.find(page);
    if (at == context.record_pages.end()) return;
    SOFTHCA_ASSERT(at->second > 0);
    if (--at->second != 0) return;
    context.record_pages.erase(at);
    unpin(*context.fabric, page, kPage);
}

}  // namespace softhca::uverbs
