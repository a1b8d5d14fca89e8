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

// The names that a directory gets: those of a list, or one of each device.
struct Parent {
    const char* path;
    unsigned char type;
    std::span<const char* const> names;
    device::DeviceText (*device_name)(unsigned device) noexcept = nullptr;

    std::size_t count() const noexcept {
        return device_name != nullptr ? known_devices() : names.size();
    }
    device::DeviceText name(std::size_t index) const noexcept {
        SOFTHCA_ASSERT(index < count());
        return device_name != nullptr ? device_name(static_cast<unsigned>(index))
                                      : device::DeviceText(names[index]);
    }
};

constexpr const char* kClasses[] = {"infiniband", "infiniband_verbs"};
constexpr const char* kDomains[] = {device::kPciDomainBus};
constexpr const char* kNodeDirectories[] = {"infiniband"};

constexpr Parent kParents[] = {
    {"/sys/class", DT_DIR, kClasses},
    {"/sys/devices", DT_DIR, kDomains},
    {"/sys/bus/pci/devices", DT_LNK, {}, device::pci_address},
    {"/dev", DT_DIR, kNodeDirectories},
    {"/dev/char", DT_LNK, {}, device::char_number},
    {"/sys/dev/char", DT_LNK, {}, device::char_number},
};
// The directory of the devices themselves: it gets no names, but the devices' type is corrected.
constexpr Parent kNodes = {"/dev/infiniband", DT_CHR, {}};

bool is_char_device(const char* name) noexcept {
    for (unsigned i = 0; i < known_devices(); ++i)
        if (device::char_device(i).view() == name) return true;
    return false;
}

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
        if (listing->parent == &kNodes && is_char_device(entry->d_name)) {
            entry->d_type = DT_CHR;
        }
        return entry;
    }
    const int saved_errno = errno;
    SOFTHCA_ASSERT(listing->parent != nullptr);
    while (listing->shown < listing->parent->count()) {
        const device::DeviceText name = listing->parent->name(listing->shown++);
        if (host_has(*listing->parent, name.c_str())) {
            continue;  // the host's listing has it
        }
        dirent& added = listing->entry;
        const std::size_t length = name.view().size();
        SOFTHCA_ASSERT(length < sizeof added.d_name);
        added = dirent{};
        added.d_ino = 0x5afc0000 + listing->shown;
        added.d_off = 0;
        added.d_type = listing->parent->type;
        added.d_reclen = static_cast<unsigned short>((offsetof(dirent, d_name) + length + 8) & ~7U);
        std::memcpy(added.d_name, name.c_str(), length + 1);
        errno = saved_errno;
        return &added;
    }
    errno = saved_errno;
    return nullptr;
}

}  // namespace softhca::preload
