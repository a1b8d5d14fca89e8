// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that open files: open, openat, creat, their fortified and 64-bit names,
// fopen, freopen. Our files are read-only, as sysfs attributes are. uverbs opens the device.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/process.h"
#include "softhca/preload/resolve.h"
#include "softhca/rdmacm/rdmacm.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::preload {

namespace {

bool needs_mode(int flags) noexcept {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open_device(const Resolved& target, int flags) noexcept {
    const char* const tree_path = target.path();
    SOFTHCA_ASSERT(tree_path != nullptr && tree_path[0] == '/');
    if ((flags & O_PATH) != 0) {
        return libc::open(tree_path, flags);
    }
    if ((flags & O_DIRECTORY) != 0) {
        errno = ENOTDIR;
        return -1;
    }
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        errno = EEXIST;
        return -1;
    }
    if (in_borrowed_memory()) {
        errno = ENXIO;  // the context would be the parent's, but the descriptor the child's
        return -1;
    }
    if (target.kind() == Resolved::Kind::kManager) return rdmacm::open_channel(flags);
    const int fd = uverbs::open_device(target.number());
    if (fd >= 0) {
        // The descriptor is a large sparse file. Only tools such as `cat` and `grep -r` read it,
        // and they must find its end.
        libc::lseek(fd, 0, SEEK_END);
    }
    return fd;
}

// Attributes have no store methods, and nobody can create files in the directories, not even root.
int open_in_tree(const char* tree_path, int flags) noexcept {
    SOFTHCA_ASSERT(tree_path != nullptr && tree_path[0] == '/');
    const bool writes =
        (flags & O_PATH) == 0 && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0 ||
                                  (flags & O_TMPFILE) == O_TMPFILE);
    if (!writes && (flags & O_CREAT) == 0) {
        return libc::open(tree_path, flags);
    }
    struct stat status {};
    const int found = (flags & O_NOFOLLOW) != 0 ? libc::lstat(tree_path, &status)
                                                : libc::stat(tree_path, &status);
    if (found != 0) {
        if (errno == ENOENT && (flags & O_CREAT) != 0) {
            errno = EACCES;
        }
        return -1;
    }
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        errno = EEXIST;
        return -1;
    }
    if (writes) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EACCES;
        return -1;
    }
    return libc::open(tree_path, flags & ~(O_CREAT | O_EXCL));
}

__attribute__((noinline)) int open_named(int directory, const char* path, int flags,
                                         mode_t mode) noexcept {
    const Follow follow =
        (flags & O_NOFOLLOW) != 0 || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)
            ? Follow::kNo
            : Follow::kYes;
    const Resolved target(directory, path, follow);
    switch (target.kind()) {
        case Resolved::Kind::kHost:
            return libc::openat(target.directory(), target.path(), flags, mode);
        case Resolved::Kind::kTree:
            return open_in_tree(target.path(), flags);
        case Resolved::Kind::kDevice:
        case Resolved::Kind::kManager:
            return open_device(target, flags);
        case Resolved::Kind::kError:
            break;
    }
    return target.fail();
}

int open_any(int directory, const char* path, int flags, mode_t mode) noexcept {
    if (foreign(path)) [[likely]] {
        return libc::openat(directory, path, flags, mode);
    }
    return open_named(directory, path, flags, mode);
}

// The flags of open() that fopen's mode means, as far as they matter for our files.
int stream_flags(const char* mode) noexcept {
    int flags = 0;
    switch (mode[0]) {
        case 'r':
            flags = O_RDONLY;
            break;
        case 'w':
            flags = O_WRONLY | O_CREAT | O_TRUNC;
            break;
        case 'a':
            flags = O_WRONLY | O_CREAT | O_APPEND;
            break;
        default:
            return -1;
    }
    for (const char* c = mode + 1; *c != '\0' && *c != ','; ++c) {
        if (*c == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
        if (*c == 'e') flags |= O_CLOEXEC;
        if (*c == 'x') flags |= O_EXCL;
    }
    return flags;
}

__attribute__((noinline)) std::FILE* fopen_named(const char* path, const char* mode) noexcept {
    const Resolved target(path);
    if (target.failed()) {
        target.fail();
        return nullptr;
    }
    if (!target.ours()) {
        return next<std::FILE*(const char*, const char*)>(Next::kFopen)(target.path(), mode);
    }
    const int flags = stream_flags(mode);
    if (flags < 0) {
        errno = EINVAL;
        return nullptr;
    }
    const int fd =
        target.device() ? open_device(target, flags) : open_in_tree(target.path(), flags);
    if (fd < 0) {
        return nullptr;
    }
    std::FILE* stream = ::fdopen(fd, mode);
    if (stream == nullptr) {
        const int error = errno;
        ::close(fd);
        errno = error;
    }
    return stream;
}

__attribute__((noinline)) std::FILE* freopen_named(const char* path, const char* mode,
                                                   std::FILE* stream) noexcept {
    auto* real = next<std::FILE*(const char*, const char*, std::FILE*)>(Next::kFreopen);
    const Resolved target(path);
    const int flags = stream_flags(mode);
    // A stream cannot be reopened on the device, and none of our files can be written.
    const bool refused =
        target.ours() && (target.device() || flags < 0 || (flags & O_ACCMODE) != O_RDONLY);
    if (target.failed() || refused) {
        const int error = target.failed() ? target.error() : EACCES;
        ::fclose(stream);  // as freopen does when it fails
        errno = error;
        return nullptr;
    }
    return real(target.path(), mode, stream);
}

// glibc aborts a program that would create a file without giving a mode.
void check_fortified(int flags) noexcept {
    if (needs_mode(flags)) {
        static const char message[] =
            "*** invalid open call: O_CREAT or O_TMPFILE without mode ***: terminated\n";
        libc::write(STDERR_FILENO, message, sizeof message - 1);
        std::abort();
    }
}

// ThreadSanitizer follows a descriptor's number from open() to close(), but does not know openat().
// It would report two successive users of a number as a race, and its report, which opens files
// through us, would wait for itself. An eventfd in the same place makes the number known.
int announced(int fd) noexcept {
#if defined(__SANITIZE_THREAD__)
    if (fd < 0 || uverbs::owns(fd)) return fd;
    const int flags = libc::fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;
    const int kept = libc::fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (kept < 0) return fd;
    libc::close(fd);
    fd = ::eventfd(0, 0);
    libc::dup3(kept, fd, flags);
    libc::close(kept);
#endif
    return fd;
}

mode_t mode_argument(int flags, va_list arguments) noexcept {
    return needs_mode(flags) ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

SOFTHCA_INTERPOSE(open, int, interpose_open, (const char* path, int flags, ...) noexcept);
int interpose_open(const char* path, int flags, ...) noexcept {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_argument(flags, arguments);
    va_end(arguments);
    return open_any(AT_FDCWD, path, flags, mode);
}
SOFTHCA_ALSO(open64, open, interpose_open);
SOFTHCA_ALSO(__open, open, interpose_open);
SOFTHCA_ALSO(__open64, open, interpose_open);

SOFTHCA_INTERPOSE(openat, int, interpose_openat,
                  (int directory, const char* path, int flags, ...) noexcept);
int interpose_openat(int directory, const char* path, int flags, ...) noexcept {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_argument(flags, arguments);
    va_end(arguments);
    return announced(open_any(directory, path, flags, mode));
}
SOFTHCA_ALSO(openat64, openat, interpose_openat);

SOFTHCA_INTERPOSE(__open_2, int, interpose_open_2, (const char* path, int flags) noexcept);
int interpose_open_2(const char* path, int flags) noexcept {
    check_fortified(flags);
    return open_any(AT_FDCWD, path, flags, 0);
}
SOFTHCA_ALSO(__open64_2, __open_2, interpose_open_2);

SOFTHCA_INTERPOSE(__openat_2, int, interpose_openat_2,
                  (int directory, const char* path, int flags) noexcept);
int interpose_openat_2(int directory, const char* path, int flags) noexcept {
    check_fortified(flags);
    return announced(open_any(directory, path, flags, 0));
}
SOFTHCA_ALSO(__openat64_2, __openat_2, interpose_openat_2);

SOFTHCA_INTERPOSE(creat, int, interpose_creat, (const char* path, mode_t mode) noexcept);
int interpose_creat(const char* path, mode_t mode) noexcept {
    return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
SOFTHCA_ALSO(creat64, creat, interpose_creat);

SOFTHCA_INTERPOSE(fopen, std::FILE*, interpose_fopen,
                  (const char* path, const char* mode) noexcept);
std::FILE* interpose_fopen(const char* path, const char* mode) noexcept {
    if (foreign(path)) [[likely]] {
        return next<std::FILE*(const char*, const char*)>(Next::kFopen)(path, mode);
    }
    return fopen_named(path, mode);
}
SOFTHCA_ALSO(fopen64, fopen, interpose_fopen);

SOFTHCA_INTERPOSE(freopen, std::FILE*, interpose_freopen,
                  (const char* path, const char* mode, std::FILE* stream) noexcept);
std::FILE* interpose_freopen(const char* path, const char* mode, std::FILE* stream) noexcept {
    if (foreign(path)) [[likely]] {
        return next<std::FILE*(const char*, const char*, std::FILE*)>(Next::kFreopen)(path, mode,
                                                                                      stream);
    }
    return freopen_named(path, mode, stream);
}
SOFTHCA_ALSO(freopen64, freopen, interpose_freopen);

}  // namespace softhca::preload
