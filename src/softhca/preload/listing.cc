// SPDX-License-Identifier: BSD-2-Clause
// A small table of the directory streams to which names are added: see listing.h.
#include "softhca/preload/listing.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include <linux/magic.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/identity.h"
#include "softhca/preload/root.h"

namespace softhca::preload {

namespace {

struct AddedName {
    const char* name;
    unsigned char type;
};

struct Parent {
    const char* path;
    std::span<const AddedName> names;
};

constexpr AddedName kClasses[] = {{"infiniband", DT_DIR}, {"infiniband_verbs", DT_DIR}};
constexpr AddedName kDomains[] = {{device::kPciDomainBus, DT_DIR}};
constexpr AddedName kPciDevices[] = {{device::kPciAddress, DT_LNK}};
constexpr AddedName kNodeDirectories[] = {{"infiniband", DT_DIR}};
constexpr AddedName kNumbers[] = {{"231:192", DT_LNK}};

constexpr Parent kParents[] = {
    {"/sys/class", kClasses},   {"/sys/devices", kDomains}, {"/sys/bus/pci/devices", kPciDevices},
    {"/dev", kNodeDirectories}, {"/dev/char", kNumbers},    {"/sys/dev/char", kNumbers},
};
// The directory of the device itself: it gets no names, but the device's type is corrected.
constexpr Parent kNodes = {"/dev/infiniband", {}};

struct Listing {
    std::atomic<DIR*> stream{nullptr};
    const Parent* parent = nullptr;
    std::size_t shown = 0;  // names added so far
    dirent entry{};
};

constexpr std::size_t kMaxListings = 64;
Listing listings[kMaxListings];
std::atomic<unsigned> g_listings{0};

Listing* find(const DIR* stream) noexcept {
    if (g_listings.load(std::memory_order_relaxed) == 0) [[likely]] {
        return nullptr;
    }
    for (Listing& listing : listings) {
        if (listing.stream.load(std::memory_order_acquire) == stream) {
            return &listing;
        }
    }
    return nullptr;
}

// All those directories are in sysfs, devtmpfs or tmpfs. This one call excludes nearly all other
// streams.
bool may_be_tracked(int fd) noexcept {
    struct statfs filesystem {};
    return libc::fstatfs(fd, &filesystem) == 0 &&
           (filesystem.f_type == SYSFS_MAGIC || filesystem.f_type == TMPFS_MAGIC);
}

const Parent* parent_of(DIR* stream) noexcept {
    if (!may_be_tracked(::dirfd(stream))) {
        return nullptr;
    }
    PathBuffer path;
    if (!descriptor_path(::dirfd(stream), &path)) {
        return nullptr;
    }
    const TreeRoot* root = joined_root();
    if (root != nullptr && root_prefix(*root, path.view()) > 0) {
        strip_root(*root, path.data(), path.length());
        return std::strcmp(path.c_str(), kNodes.path) == 0 ? &kNodes : nullptr;
    }
    for (const Parent& parent : kParents) {
        if (path.view() == parent.path) {
            return &parent;
        }
    }
    return nullptr;
}

bool host_has(const Parent& parent, const char* name) noexcept {
    PathBuffer path;
    struct stat status {};
    return path.assign(parent.path) && path.push(name) && libc::lstat(path.c_str(), &status) == 0;
}

}  // namespace

void track_listing(DIR* stream) noexcept {
    SOFTHCA_ASSERT(stream != nullptr);
    const int saved_errno = errno;
    const Parent* parent = parent_of(stream);
    errno = saved_errno;
    if (parent == nullptr) {
        return;
    }
    for (Listing& listing : listings) {
        // First reserve the slot by a mark that is no stream's address, then fill it in, then store
        // the stream.
        DIR* free = nullptr;
        DIR* mark = reinterpret_cast<DIR*>(&listing);
        if (listing.stream.compare_exchange_strong(free, mark, std::memory_order_acquire)) {
            listing.parent = parent;
            listing.shown = 0;
            listing.stream.store(stream, std::memory_order_release);
            g_listings.fetch_add(1, std::memory_order_relaxed);
            return;
        }
    }
    LOG_DEBUG("more than %zu directory streams over softhca's: %s is listed without the device",
              kMaxListings, parent->path);
}

void forget_listing(DIR* stream) noexcept {
    if (Listing* listing = find(stream)) {
        const unsigned before = g_listings.fetch_sub(1, std::memory_order_relaxed);
        SOFTHCA_ASSERT(before > 0 && before <= kMaxListings);
        listing->stream.store(nullptr, std::memory_order_release);
    }
}

void rewind_listing(DIR* stream) noexcept {
    if (Listing* listing = find(stream)) {
        listing->shown = 0;
    }
}

dirent* show_listing(DIR* stream, dirent* entry) noexcept {
    Listing* listing = find(stream);
    if (listing == nullptr) [[likely]] {
        return entry;
    }
    if (entry != nullptr) {
        const bool device =
            listing->parent == &kNodes && std::strcmp(entry->d_name, device::kCharDevice) == 0;
        if (device) {
            entry->d_type = DT_CHR;
        }
        return entry;
    }
    const int saved_errno = errno;
    SOFTHCA_ASSERT(listing->parent != nullptr && listing->shown <= listing->parent->names.size());
    const std::span<const AddedName> names = listing->parent->names;
    while (listing->shown < names.size()) {
        const AddedName& name = names[listing->shown++];
        if (host_has(*listing->parent, name.name)) {
            continue;  // the host's listing has it
        }
        dirent& added = listing->entry;
        const std::size_t length = std::strlen(name.name);
        SOFTHCA_ASSERT(length < sizeof added.d_name);
        added = dirent{};
        added.d_ino = 0x5afc0000 + listing->shown;
        added.d_off = 0;
        added.d_type = name.type;
        added.d_reclen = static_cast<unsigned short>((offsetof(dirent, d_name) + length + 8) & ~7U);
        std::memcpy(added.d_name, name.name, length + 1);
        errno = saved_errno;
        return &added;
    }
    errno = saved_errno;
    return nullptr;
}

}  // namespace softhca::preload
