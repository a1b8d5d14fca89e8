// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that describe files: the stat family with its 64-bit names and the
// names that programs built before glibc 2.33 call (__xstat and so on), statx, statfs, statvfs.
#include <cerrno>

#include <fcntl.h>
#include <sys/statvfs.h>

#include "softhca/base/libc.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/resolve.h"
#include "softhca/preload/status.h"
#include "softhca/rdmacm/rdmacm.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {

namespace {

static_assert(sizeof(struct stat) == sizeof(struct stat64), "64-bit architectures only");

Follow follow_of(int flags) noexcept {
    return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Follow::kNo : Follow::kYes;
}

// Command descriptors and their duplicates look like any file without a name; channels of rdma_cm
// like pipes. Either is described as the device that the program opened.
template <class Status>
void describe_descriptor_of_ours(int fd, mode_t mode, unsigned long links, Status* out) noexcept {
    if (S_ISREG(mode) && links == 0 && (uverbs::owns(fd) || uverbs::adopt(fd))) [[unlikely]]
        describe_device(Claim::kDevice, uverbs::device_of(fd), out);
    else if (S_ISFIFO(mode) && rdmacm::owns(fd)) [[unlikely]]
        describe_device(Claim::kManager, 0, out);
}

Claim device_of(const Resolved& target) noexcept {
    return target.kind() == Resolved::Kind::kManager ? Claim::kManager : Claim::kDevice;
}

int describe_descriptor(int fd, struct stat* out) noexcept {
    const int result = libc::fstat(fd, out);
    if (result == 0) describe_descriptor_of_ours(fd, out->st_mode, out->st_nlink, out);
    return result;
}

__attribute__((noinline)) int stat_named(int directory, const char* path, struct stat* out,
                                         int flags) noexcept {
    const Resolved target(directory, path, follow_of(flags));
    if (target.failed()) {
        return target.fail();
    }
    const int result = libc::fstatat(target.directory(), target.path(), out, flags);
    if (result == 0 && target.device()) {
        describe_device(device_of(target), target.number(), out);
    }
    return result;
}

bool names_descriptor(int directory, const char* path, int flags) noexcept {
    return (flags & AT_EMPTY_PATH) != 0 && directory >= 0 && (path == nullptr || path[0] == '\0');
}

int stat_any(int directory, const char* path, struct stat* out, int flags) noexcept {
    if (names_descriptor(directory, path, flags)) {
        const int result = libc::fstatat(directory, path, out, flags);
        if (result == 0) describe_descriptor_of_ours(directory, out->st_mode, out->st_nlink, out);
        return result;
    }
    if (foreign(path)) [[likely]] {
        return libc::fstatat(directory, path, out, flags);
    }
    return stat_named(directory, path, out, flags);
}

// The versions of struct stat that the old names take: the kernel's and glibc's, which are the same
// on 64-bit architectures.
bool known_version(int version) noexcept {
    if (version == 0 || version == 1) {
        return true;
    }
    errno = EINVAL;
    return false;
}

__attribute__((noinline)) int statx_named(int directory, const char* path, int flags, unsigned mask,
                                          struct statx* out) noexcept {
    const Resolved target(directory, path, follow_of(flags));
    if (target.failed()) {
        return target.fail();
    }
    const int result = libc::statx(target.directory(), target.path(), flags, mask, out);
    if (result == 0 && target.device()) {
        describe_device(device_of(target), target.number(), out);
    }
    return result;
}

}  // namespace

SOFTHCA_INTERPOSE(stat, int, interpose_stat, (const char* path, struct stat* out) noexcept);
int interpose_stat(const char* path, struct stat* out) noexcept {
    return stat_any(AT_FDCWD, path, out, 0);
}
SOFTHCA_ALSO(stat64, stat, interpose_stat);

SOFTHCA_INTERPOSE(lstat, int, interpose_lstat, (const char* path, struct stat* out) noexcept);
int interpose_lstat(const char* path, struct stat* out) noexcept {
    return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_ALSO(lstat64, lstat, interpose_lstat);

SOFTHCA_INTERPOSE(fstat, int, interpose_fstat, (int fd, struct stat* out) noexcept);
int interpose_fstat(int fd, struct stat* out) noexcept { return describe_descriptor(fd, out); }
SOFTHCA_ALSO(fstat64, fstat, interpose_fstat);

SOFTHCA_INTERPOSE(fstatat, int, interpose_fstatat,
                  (int directory, const char* path, struct stat* out, int flags) noexcept);
int interpose_fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
    return stat_any(directory, path, out, flags);
}
SOFTHCA_ALSO(fstatat64, fstatat, interpose_fstatat);

SOFTHCA_INTERPOSE(__xstat, int, interpose_xstat,
                  (int version, const char* path, struct stat* out) noexcept);
int interpose_xstat(int version, const char* path, struct stat* out) noexcept {
    return known_version(version) ? stat_any(AT_FDCWD, path, out, 0) : -1;
}
SOFTHCA_ALSO(__xstat64, __xstat, interpose_xstat);

SOFTHCA_INTERPOSE(__lxstat, int, interpose_lxstat,
                  (int version, const char* path, struct stat* out) noexcept);
int interpose_lxstat(int version, const char* path, struct stat* out) noexcept {
    return known_version(version) ? stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) : -1;
}
SOFTHCA_ALSO(__lxstat64, __lxstat, interpose_lxstat);

SOFTHCA_INTERPOSE(__fxstat, int, interpose_fxstat,
                  (int version, int fd, struct stat* out) noexcept);
int interpose_fxstat(int version, int fd, struct stat* out) noexcept {
    return known_version(version) ? describe_descriptor(fd, out) : -1;
}
SOFTHCA_ALSO(__fxstat64, __fxstat, interpose_fxstat);

SOFTHCA_INTERPOSE(__fxstatat, int, interpose_fxstatat,
                  (int version, int directory, const char* path, struct stat* out,
                   int flags) noexcept);
int interpose_fxstatat(int version, int directory, const char* path, struct stat* out,
                       int flags) noexcept {
    return known_version(version) ? stat_any(directory, path, out, flags) : -1;
}
SOFTHCA_ALSO(__fxstatat64, __fxstatat, interpose_fxstatat);

SOFTHCA_INTERPOSE(statx, int, interpose_statx,
                  (int directory, const char* path, int flags, unsigned mask,
                   struct statx* out) noexcept);
int interpose_statx(int directory, const char* path, int flags, unsigned mask,
                    struct statx* out) noexcept {
    if (names_descriptor(directory, path, flags)) {
        const int result = libc::statx(directory, path, flags, mask, out);
        if (result == 0) describe_descriptor_of_ours(directory, out->stx_mode, out->stx_nlink, out);
        return result;
    }
    if (foreign(path)) [[likely]] {
        return libc::statx(directory, path, flags, mask, out);
    }
    return statx_named(directory, path, flags, mask, out);
}

SOFTHCA_INTERPOSE(statfs, int, interpose_statfs, (const char* path, struct statfs* out) noexcept);
int interpose_statfs(const char* path, struct statfs* out) noexcept {
    if (foreign(path)) [[likely]] {
        return libc::statfs(path, out);
    }
    const Resolved target(path);
    return target.failed() ? target.fail() : libc::statfs(target.path(), out);
}
SOFTHCA_ALSO(statfs64, statfs, interpose_statfs);

SOFTHCA_INTERPOSE(statvfs, int, interpose_statvfs,
                  (const char* path, struct statvfs* out) noexcept);
int interpose_statvfs(const char* path, struct statvfs* out) noexcept {
    auto* real = next<int(const char*, struct statvfs*)>(Next::kStatvfs);
    if (foreign(path)) [[likely]] {
        return real(path, out);
    }
    const Resolved target(path);
    return target.failed() ? target.fail() : real(target.path(), out);
}
SOFTHCA_ALSO(statvfs64, statvfs, interpose_statvfs);

}  // namespace softhca::preload
