// SPDX-License-Identifier: BSD-2-Clause
// Faces of libc that describe files: the stat family with its 64-bit names and the names that
// programs built before glibc 2.33 call (__xstat and so on), statx, statfs, statvfs.
#include <cerrno>

#include <fcntl.h>
#include <sys/statvfs.h>

#include "softhca/base/libc.h"
#include "softhca/preload/face.h"
#include "softhca/preload/next.h"
#include "softhca/preload/resolve.h"
#include "softhca/preload/status.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {

namespace {

static_assert(sizeof(struct stat) == sizeof(struct stat64), "64-bit architectures only");

Follow follow_of(int flags) noexcept {
    return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Follow::kNo : Follow::kYes;
}

// A command descriptor, or a duplicate of one, which looks like any file without a name.
bool is_command(int fd, mode_t mode, unsigned long links) noexcept {
    return S_ISREG(mode) && links == 0 && (uverbs::owns(fd) || uverbs::adopt(fd));
}

int describe_descriptor(int fd, struct stat* out) noexcept {
    const int result = libc::fstat(fd, out);
    if (result == 0 && is_command(fd, out->st_mode, out->st_nlink)) [[unlikely]] {
        describe_device(out);
    }
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
        describe_device(out);
    }
    return result;
}

bool names_descriptor(int directory, const char* path, int flags) noexcept {
    return (flags & AT_EMPTY_PATH) != 0 && directory >= 0 && (path == nullptr || path[0] == '\0');
}

int stat_any(int directory, const char* path, struct stat* out, int flags) noexcept {
    if (names_descriptor(directory, path, flags)) {
        const int result = libc::fstatat(directory, path, out, flags);
        if (result == 0 && is_command(directory, out->st_mode, out->st_nlink)) [[unlikely]] {
            describe_device(out);
        }
        return result;
    }
    if (foreign(path)) [[likely]] {
        return libc::fstatat(directory, path, out, flags);
    }
    return stat_named(directory, path, out, flags);
}

// The versions of struct stat that the old names are told: the kernel's and glibc's, which are one
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
        describe_device(out);
    }
    return result;
}

}  // namespace

SOFTHCA_FACE(stat, int, stat_face, (const char* path, struct stat* out) noexcept);
int stat_face(const char* path, struct stat* out) noexcept {
    return stat_any(AT_FDCWD, path, out, 0);
}
SOFTHCA_ALSO(stat64, stat, stat_face);

SOFTHCA_FACE(lstat, int, lstat_face, (const char* path, struct stat* out) noexcept);
int lstat_face(const char* path, struct stat* out) noexcept {
    return stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_ALSO(lstat64, lstat, lstat_face);

SOFTHCA_FACE(fstat, int, fstat_face, (int fd, struct stat* out) noexcept);
int fstat_face(int fd, struct stat* out) noexcept { return describe_descriptor(fd, out); }
SOFTHCA_ALSO(fstat64, fstat, fstat_face);

SOFTHCA_FACE(fstatat, int, fstatat_face,
             (int directory, const char* path, struct stat* out, int flags) noexcept);
int fstatat_face(int directory, const char* path, struct stat* out, int flags) noexcept {
    return stat_any(directory, path, out, flags);
}
SOFTHCA_ALSO(fstatat64, fstatat, fstatat_face);

SOFTHCA_FACE(__xstat, int, xstat_face, (int version, const char* path, struct stat* out) noexcept);
int xstat_face(int version, const char* path, struct stat* out) noexcept {
    return known_version(version) ? stat_any(AT_FDCWD, path, out, 0) : -1;
}
SOFTHCA_ALSO(__xstat64, __xstat, xstat_face);

SOFTHCA_FACE(__lxstat, int, lxstat_face,
             (int version, const char* path, struct stat* out) noexcept);
int lxstat_face(int version, const char* path, struct stat* out) noexcept {
    return known_version(version) ? stat_any(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) : -1;
}
SOFTHCA_ALSO(__lxstat64, __lxstat, lxstat_face);

SOFTHCA_FACE(__fxstat, int, fxstat_face, (int version, int fd, struct stat* out) noexcept);
int fxstat_face(int version, int fd, struct stat* out) noexcept {
    return known_version(version) ? describe_descriptor(fd, out) : -1;
}
SOFTHCA_ALSO(__fxstat64, __fxstat, fxstat_face);

SOFTHCA_FACE(__fxstatat, int, fxstatat_face,
             (int version, int directory, const char* path, struct stat* out, int flags) noexcept);
int fxstatat_face(int version, int directory, const char* path, struct stat* out,
                  int flags) noexcept {
    return known_version(version) ? stat_any(directory, path, out, flags) : -1;
}
SOFTHCA_ALSO(__fxstatat64, __fxstatat, fxstatat_face);

SOFTHCA_FACE(statx, int, statx_face,
             (int directory, const char* path, int flags, unsigned mask,
              struct statx* out) noexcept);
int statx_face(int directory, const char* path, int flags, unsigned mask,
               struct statx* out) noexcept {
    if (names_descriptor(directory, path, flags)) {
        const int result = libc::statx(directory, path, flags, mask, out);
        if (result == 0 && is_command(directory, out->stx_mode, out->stx_nlink)) [[unlikely]] {
            describe_device(out);
        }
        return result;
    }
    if (foreign(path)) [[likely]] {
        return libc::statx(directory, path, flags, mask, out);
    }
    return statx_named(directory, path, flags, mask, out);
}

SOFTHCA_FACE(statfs, int, statfs_face, (const char* path, struct statfs* out) noexcept);
int statfs_face(const char* path, struct statfs* out) noexcept {
    if (foreign(path)) [[likely]] {
        return libc::statfs(path, out);
    }
    const Resolved target(path);
    return target.failed() ? target.fail() : libc::statfs(target.path(), out);
}
SOFTHCA_ALSO(statfs64, statfs, statfs_face);

SOFTHCA_FACE(statvfs, int, statvfs_face, (const char* path, struct statvfs* out) noexcept);
int statvfs_face(const char* path, struct statvfs* out) noexcept {
    auto* real = next<int(const char*, struct statvfs*)>(Next::kStatvfs);
    if (foreign(path)) [[likely]] {
        return real(path, out);
    }
    const Resolved target(path);
    return target.failed() ? target.fail() : real(target.path(), out);
}
SOFTHCA_ALSO(statvfs64, statvfs, statvfs_face);

}  // namespace softhca::preload
