// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that ask about names: access, readlink, realpath, the working
// directory, extended attributes, inotify. Names that the kernel or libc returns lose the tree's
// directory.
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/resolve.h"

namespace softhca::preload {

namespace {

// --- access -------------------------------------------------------------------------------------

int real_faccessat(int directory, const char* path, int mode, int flags) noexcept {
    if (flags == 0) {
        return libc::faccessat(directory, path, mode);
    }
    const int result = libc::faccessat2(directory, path, mode, flags);
    if (result == 0 || (errno != ENOSYS && errno != EPERM)) {
        return result;
    }
    // Before Linux 5.8 libc evaluates the flags itself.
    return next<int(int, const char*, int, int)>(Next::kFaccessat)(directory, path, mode, flags);
}

__attribute__((noinline)) int access_named(int directory, const char* path, int mode,
                                           int flags) noexcept {
    const Resolved target(directory, path,
                          (flags & AT_SYMLINK_NOFOLLOW) != 0 ? Follow::kNo : Follow::kYes);
    if (target.failed()) {
        return target.fail();
    }
    const int asked = target.kind() == Resolved::Kind::kTree ? mode & ~W_OK : mode;
    const int result = real_faccessat(target.directory(), target.path(), asked, flags);
    if (result == 0 && asked != mode) {
        errno = EACCES;  // nothing in the tree can be written
        return -1;
    }
    return result;
}

int access_any(int directory, const char* path, int mode, int flags) noexcept {
    if (foreign(path)) [[likely]] {
        return real_faccessat(directory, path, mode, flags);
    }
    return access_named(directory, path, mode, flags);
}

// --- readlink -----------------------------------------------------------------------------------

// Removes the tree's directory from the target of a link, such as /proc/self/fd/N. The caller's
// buffer may be too short for the whole target, so the link is read again.
__attribute__((noinline)) ssize_t strip_link(const TreeRoot& root, int directory, const char* path,
                                             char* buffer, std::size_t size,
                                             ssize_t length) noexcept {
    PathBuffer whole;
    const ssize_t full = libc::readlinkat(directory, path, whole.data(), PATH_MAX - 1);
    if (full <= 0) {
        return length;
    }
    SOFTHCA_ASSERT(full < PATH_MAX);
    whole.set_length(static_cast<std::size_t>(full));
    if (root_prefix(root, whole.view()) == 0) {
        return length;
    }
    std::size_t stripped = strip_root(root, whole.data(), whole.length());
    stripped = stripped < size ? stripped : size;
    SOFTHCA_ASSERT(stripped <= size);
    std::memcpy(buffer, whole.c_str(), stripped);
    return static_cast<ssize_t>(stripped);
}

ssize_t readlink_visible(int directory, const char* path, char* buffer, std::size_t size) noexcept {
    const ssize_t length = libc::readlinkat(directory, path, buffer, size);
    if (length > 0 && buffer[0] == '/') {
        if (const TreeRoot* root = root_for({buffer, static_cast<std::size_t>(length)})) {
            return strip_link(*root, directory, path, buffer, size, length);
        }
    }
    return length;
}

__attribute__((noinline)) ssize_t readlink_named(int directory, const char* path, char* buffer,
                                                 std::size_t size) noexcept {
    const Resolved target(directory, path, Follow::kNo);
    return target.failed() ? target.fail()
                           : readlink_visible(target.directory(), target.path(), buffer, size);
}

ssize_t readlink_any(int directory, const char* path, char* buffer, std::size_t size) noexcept {
    if (foreign(path)) [[likely]] {
        return readlink_visible(directory, path, buffer, size);
    }
    return readlink_named(directory, path, buffer, size);
}

// --- realpath -----------------------------------------------------------------------------------

char* real_realpath(const char* path, char* buffer) noexcept {
    char* result = next<char*(const char*, char*)>(Next::kRealpath)(path, buffer);
    if (result != nullptr) {
        if (const TreeRoot* root = root_for(result)) {
            strip_root(*root, result, std::strlen(result));
        }
    }
    return result;
}

__attribute__((noinline)) char* realpath_named(const char* path, char* buffer) noexcept {
    const Resolved target(path);
    if (target.failed()) {
        target.fail();
        return nullptr;
    }
    return real_realpath(target.path(), buffer);
}

char* realpath_any(const char* path, char* buffer) noexcept {
    return foreign(path) ? real_realpath(path, buffer) : realpath_named(path, buffer);
}

// --- working directory --------------------------------------------------------------------------

// Whether the working directory lies in the tree. `out` is the path that the application sees.
bool working_directory_in_tree(PathBuffer* out) noexcept {
    const int saved_errno = errno;
    const ssize_t length = libc::getcwd(out->data(), PATH_MAX);
    errno = saved_errno;
    if (length <= 0) {
        return false;
    }
    SOFTHCA_ASSERT(length < PATH_MAX);
    out->set_length(static_cast<std::size_t>(length));
    const TreeRoot* root = root_for(out->view());
    if (root == nullptr || root_prefix(*root, out->view()) == 0) {
        return false;
    }
    out->set_length(strip_root(*root, out->data(), out->length()));
    return true;
}

char* give_path(const PathBuffer& path, char* buffer, std::size_t size) noexcept {
    if (buffer != nullptr && size == 0) {
        errno = EINVAL;
        return nullptr;
    }
    if (size != 0 && path.length() >= size) {
        errno = ERANGE;
        return nullptr;
    }
    if (buffer == nullptr) {
        buffer = static_cast<char*>(std::malloc(size != 0 ? size : path.length() + 1));
        if (buffer == nullptr) {
            return nullptr;
        }
    }
    SOFTHCA_ASSERT(size == 0 || path.length() < size);
    std::memcpy(buffer, path.c_str(), path.length() + 1);
    return buffer;
}

// For calls that only pass one path on.
template <typename Result, typename Call>
Result redirected(const char* path, Follow follow, Call call) noexcept {
    if (foreign(path)) [[likely]] {
        return call(path);
    }
    const Resolved target(path, follow);
    return target.failed() ? static_cast<Result>(target.fail()) : call(target.path());
}

}  // namespace

SOFTHCA_INTERPOSE(access, int, interpose_access, (const char* path, int mode) noexcept);
int interpose_access(const char* path, int mode) noexcept {
    return access_any(AT_FDCWD, path, mode, 0);
}

SOFTHCA_INTERPOSE(faccessat, int, interpose_faccessat,
                  (int directory, const char* path, int mode, int flags) noexcept);
int interpose_faccessat(int directory, const char* path, int mode, int flags) noexcept {
    return access_any(directory, path, mode, flags);
}

SOFTHCA_INTERPOSE(eaccess, int, interpose_eaccess, (const char* path, int mode) noexcept);
int interpose_eaccess(const char* path, int mode) noexcept {
    return access_any(AT_FDCWD, path, mode, AT_EACCESS);
}
SOFTHCA_ALSO(euidaccess, eaccess, interpose_eaccess);

SOFTHCA_INTERPOSE(readlink, ssize_t, interpose_readlink,
                  (const char* path, char* buffer, std::size_t size) noexcept);
ssize_t interpose_readlink(const char* path, char* buffer, std::size_t size) noexcept {
    return readlink_any(AT_FDCWD, path, buffer, size);
}

SOFTHCA_INTERPOSE(readlinkat, ssize_t, interpose_readlinkat,
                  (int directory, const char* path, char* buffer, std::size_t size) noexcept);
ssize_t interpose_readlinkat(int directory, const char* path, char* buffer,
                             std::size_t size) noexcept {
    return readlink_any(directory, path, buffer, size);
}

SOFTHCA_INTERPOSE(__readlink_chk, ssize_t, interpose_readlink_chk,
                  (const char* path, char* buffer, std::size_t size, std::size_t room) noexcept);
ssize_t interpose_readlink_chk(const char* path, char* buffer, std::size_t size,
                               std::size_t room) noexcept {
    if (size > room) {  // libc's own function ends the program with its message
        return next<ssize_t(const char*, char*, std::size_t, std::size_t)>(Next::kReadlinkChk)(
            path, buffer, size, room);
    }
    return readlink_any(AT_FDCWD, path, buffer, size);
}

SOFTHCA_INTERPOSE(__readlinkat_chk, ssize_t, interpose_readlinkat_chk,
                  (int directory, const char* path, char* buffer, std::size_t size,
                   std::size_t room) noexcept);
ssize_t interpose_readlinkat_chk(int directory, const char* path, char* buffer, std::size_t size,
                                 std::size_t room) noexcept {
    if (size > room) {
        return next<ssize_t(int, const char*, char*, std::size_t, std::size_t)>(
            Next::kReadlinkatChk)(directory, path, buffer, size, room);
    }
    return readlink_any(directory, path, buffer, size);
}

SOFTHCA_INTERPOSE(realpath, char*, interpose_realpath, (const char* path, char* buffer) noexcept);
char* interpose_realpath(const char* path, char* buffer) noexcept {
    return realpath_any(path, buffer);
}

SOFTHCA_INTERPOSE(__realpath_chk, char*, interpose_realpath_chk,
                  (const char* path, char* buffer, std::size_t room) noexcept);
char* interpose_realpath_chk(const char* path, char* buffer, std::size_t room) noexcept {
    if (room < PATH_MAX) {
        return next<char*(const char*, char*, std::size_t)>(Next::kRealpathChk)(path, buffer, room);
    }
    return realpath_any(path, buffer);
}

SOFTHCA_INTERPOSE(canonicalize_file_name, char*, interpose_canonicalize,
                  (const char* path) noexcept);
char* interpose_canonicalize(const char* path) noexcept { return realpath_any(path, nullptr); }

SOFTHCA_INTERPOSE(chdir, int, interpose_chdir, (const char* path) noexcept);
int interpose_chdir(const char* path) noexcept {
    return redirected<int>(path, Follow::kYes, [](const char* p) { return libc::chdir(p); });
}

SOFTHCA_INTERPOSE(getcwd, char*, interpose_getcwd, (char* buffer, std::size_t size) noexcept);
char* interpose_getcwd(char* buffer, std::size_t size) noexcept {
    PathBuffer visible;
    return working_directory_in_tree(&visible)
               ? give_path(visible, buffer, size)
               : next<char*(char*, std::size_t)>(Next::kGetcwd)(buffer, size);
}

SOFTHCA_INTERPOSE(__getcwd_chk, char*, interpose_getcwd_chk,
                  (char* buffer, std::size_t size, std::size_t room) noexcept);
char* interpose_getcwd_chk(char* buffer, std::size_t size, std::size_t room) noexcept {
    if (size > room) {
        return next<char*(char*, std::size_t, std::size_t)>(Next::kGetcwdChk)(buffer, size, room);
    }
    return interpose_getcwd(buffer, size);
}

SOFTHCA_INTERPOSE(get_current_dir_name, char*, interpose_get_current_dir_name, () noexcept);
char* interpose_get_current_dir_name() noexcept {
    PathBuffer visible;
    return working_directory_in_tree(&visible) ? give_path(visible, nullptr, 0)
                                               : next<char*()>(Next::kGetCurrentDirName)();
}

SOFTHCA_INTERPOSE(getxattr, ssize_t, interpose_getxattr,
                  (const char* path, const char* name, void* value, std::size_t size) noexcept);
ssize_t interpose_getxattr(const char* path, const char* name, void* value,
                           std::size_t size) noexcept {
    return redirected<ssize_t>(path, Follow::kYes,
                               [&](const char* p) { return libc::getxattr(p, name, value, size); });
}

SOFTHCA_INTERPOSE(lgetxattr, ssize_t, interpose_lgetxattr,
                  (const char* path, const char* name, void* value, std::size_t size) noexcept);
ssize_t interpose_lgetxattr(const char* path, const char* name, void* value,
                            std::size_t size) noexcept {
    return redirected<ssize_t>(
        path, Follow::kNo, [&](const char* p) { return libc::lgetxattr(p, name, value, size); });
}

SOFTHCA_INTERPOSE(listxattr, ssize_t, interpose_listxattr,
                  (const char* path, char* list, std::size_t size) noexcept);
ssize_t interpose_listxattr(const char* path, char* list, std::size_t size) noexcept {
    return redirected<ssize_t>(path, Follow::kYes,
                               [&](const char* p) { return libc::listxattr(p, list, size); });
}

SOFTHCA_INTERPOSE(llistxattr, ssize_t, interpose_llistxattr,
                  (const char* path, char* list, std::size_t size) noexcept);
ssize_t interpose_llistxattr(const char* path, char* list, std::size_t size) noexcept {
    return redirected<ssize_t>(path, Follow::kNo,
                               [&](const char* p) { return libc::llistxattr(p, list, size); });
}

SOFTHCA_INTERPOSE(inotify_add_watch, int, interpose_inotify_add_watch,
                  (int fd, const char* path, std::uint32_t mask) noexcept);
int interpose_inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
    return redirected<int>(path, Follow::kYes,
                           [&](const char* p) { return libc::inotify_add_watch(fd, p, mask); });
}

SOFTHCA_INTERPOSE(pathconf, long, interpose_pathconf, (const char* path, int name) noexcept);
long interpose_pathconf(const char* path, int name) noexcept {
    return redirected<long>(path, Follow::kYes, [&](const char* p) {
        return next<long(const char*, int)>(Next::kPathconf)(p, name);
    });
}

}  // namespace softhca::preload
