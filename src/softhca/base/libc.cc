// SPDX-License-Identifier: BSD-2-Clause
// System calls by number. Only calls that every 64-bit Linux architecture has are used. aarch64 has
// no open, stat, access, readlink, dup2 or poll, so their *at and p* successors are called instead.
#include "softhca/base/libc.h"

#include <cerrno>
#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"

#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace softhca::libc {

namespace {

template <typename Result, typename... Arguments>
Result call(long number, Arguments... arguments) noexcept {
    return static_cast<Result>(::syscall(number, arguments...));
}

}  // namespace

int open(const char* path, int flags, mode_t mode) noexcept {
    return call<int>(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, mode_t mode) noexcept {
    return call<int>(SYS_openat, directory, path, flags, mode);
}

int close(int fd) noexcept { return call<int>(SYS_close, fd); }

int close_range(unsigned first, unsigned last, unsigned flags) noexcept {
    return call<int>(SYS_close_range, first, last, flags);
}

ssize_t read(int fd, void* buffer, std::size_t size) noexcept {
    return call<ssize_t>(SYS_read, fd, buffer, size);
}

ssize_t write(int fd, const void* buffer, std::size_t size) noexcept {
    return call<ssize_t>(SYS_write, fd, buffer, size);
}

ssize_t pread(int fd, void* buffer, std::size_t size, off_t offset) noexcept {
    return call<ssize_t>(SYS_pread64, fd, buffer, size, offset);
}

ssize_t pwrite(int fd, const void* buffer, std::size_t size, off_t offset) noexcept {
    return call<ssize_t>(SYS_pwrite64, fd, buffer, size, offset);
}

ssize_t readv(int fd, const iovec* vector, int count) noexcept {
    return call<ssize_t>(SYS_readv, fd, vector, count);
}

ssize_t writev(int fd, const iovec* vector, int count) noexcept {
    return call<ssize_t>(SYS_writev, fd, vector, count);
}

off_t lseek(int fd, off_t offset, int whence) noexcept {
    return call<off_t>(SYS_lseek, fd, offset, whence);
}

int ftruncate(int fd, off_t length) noexcept { return call<int>(SYS_ftruncate, fd, length); }

int fallocate(int fd, int mode, off_t offset, off_t length) noexcept {
    return call<int>(SYS_fallocate, fd, mode, offset, length);
}

int ioctl(int fd, unsigned long request, void* argument) noexcept {
    return call<int>(SYS_ioctl, fd, request, argument);
}

int fcntl(int fd, int command, long argument) noexcept {
    return call<int>(SYS_fcntl, fd, command, argument);
}

int fcntl(int fd, int command, void* argument) noexcept {
    return call<int>(SYS_fcntl, fd, command, argument);
}

int dup(int fd) noexcept { return call<int>(SYS_dup, fd); }

int dup2(int fd, int target) noexcept {
    if (fd == target) {
        // dup3(2) refuses equal numbers; dup2(2) then only checks that the descriptor is open.
        return fcntl(fd, F_GETFD) < 0 ? -1 : fd;
    }
    return dup3(fd, target, 0);
}

int dup3(int fd, int target, int flags) noexcept { return call<int>(SYS_dup3, fd, target, flags); }

int pipe2(int fds[2], int flags) noexcept { return call<int>(SYS_pipe2, fds, flags); }

int eventfd(unsigned value, int flags) noexcept { return call<int>(SYS_eventfd2, value, flags); }

int memfd_create(const char* name, unsigned flags) noexcept {
    return call<int>(SYS_memfd_create, name, flags);
}

int socket(int domain, int type, int protocol) noexcept {
    return call<int>(SYS_socket, domain, type, protocol);
}

ssize_t sendto(int fd, const void* buffer, std::size_t size, int flags) noexcept {
    return call<ssize_t>(SYS_sendto, fd, buffer, size, flags, nullptr, 0);
}

ssize_t recvfrom(int fd, void* buffer, std::size_t size, int flags) noexcept {
    return call<ssize_t>(SYS_recvfrom, fd, buffer, size, flags, nullptr, nullptr);
}

int poll(pollfd* fds, nfds_t count, int timeout_ms) noexcept {
    if (timeout_ms < 0) {
        return call<int>(SYS_ppoll, fds, count, nullptr, nullptr, 0UL);
    }
    SOFTHCA_DEBUG_ASSERT(timeout_ms >= 0);
    struct timespec timeout {};
    timeout.tv_sec = timeout_ms / 1000;
    timeout.tv_nsec = (timeout_ms % 1000) * 1'000'000L;
    return call<int>(SYS_ppoll, fds, count, &timeout, nullptr, 0UL);
}

int stat(const char* path, struct stat* out) noexcept {
    return libc::fstatat(AT_FDCWD, path, out, 0);
}

int lstat(const char* path, struct stat* out) noexcept {
    return libc::fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat* out) noexcept { return call<int>(SYS_fstat, fd, out); }

int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
    return call<int>(SYS_newfstatat, directory, path, out, flags);
}

int statx(int directory, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
    return call<int>(SYS_statx, directory, path, flags, mask, out);
}

int statfs(const char* path, struct statfs* out) noexcept {
    return call<int>(SYS_statfs, path, out);
}

int fstatfs(int fd, struct statfs* out) noexcept { return call<int>(SYS_fstatfs, fd, out); }

int faccessat(int directory, const char* path, int mode) noexcept {
    return call<int>(SYS_faccessat, directory, path, mode);
}

int faccessat2(int directory, const char* path, int mode, int flags) noexcept {
    return call<int>(SYS_faccessat2, directory, path, mode, flags);
}

ssize_t readlink(const char* path, char* buffer, std::size_t size) noexcept {
    return readlinkat(AT_FDCWD, path, buffer, size);
}

ssize_t readlinkat(int directory, const char* path, char* buffer, std::size_t size) noexcept {
    return call<ssize_t>(SYS_readlinkat, directory, path, buffer, size);
}

int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int mkdirat(int directory, const char* path, mode_t mode) noexcept {
    return call<int>(SYS_mkdirat, directory, path, mode);
}

int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }

int unlinkat(int directory, const char* path, int flags) noexcept {
    return call<int>(SYS_unlinkat, directory, path, flags);
}

int rename(const char* from, const char* to) noexcept {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
    return call<int>(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

int symlinkat(const char* target, int directory, const char* path) noexcept {
    return call<int>(SYS_symlinkat, target, directory, path);
}

int fchmod(int fd, mode_t mode) noexcept { return call<int>(SYS_fchmod, fd, mode); }

int chdir(const char* path) noexcept { return call<int>(SYS_chdir, path); }

int fchdir(int fd) noexcept { return call<int>(SYS_fchdir, fd); }

ssize_t getcwd(char* buffer, std::size_t size) noexcept {
    const auto with_terminator = call<ssize_t>(SYS_getcwd, buffer, size);
    SOFTHCA_DEBUG_ASSERT(with_terminator != 0, "the kernel counts the NUL");
    return with_terminator < 0 ? -1 : with_terminator - 1;
}

ssize_t getdents64(int fd, void* buffer, std::size_t size) noexcept {
    return call<ssize_t>(SYS_getdents64, fd, buffer, size);
}

int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
    return call<int>(SYS_inotify_add_watch, fd, path, mask);
}

ssize_t getxattr(const char* path, const char* name, void* value, std::size_t size) noexcept {
    return call<ssize_t>(SYS_getxattr, path, name, value, size);
}

ssize_t lgetxattr(const char* path, const char* name, void* value, std::size_t size) noexcept {
    return call<ssize_t>(SYS_lgetxattr, path, name, value, size);
}

ssize_t listxattr(const char* path, char* list, std::size_t size) noexcept {
    return call<ssize_t>(SYS_listxattr, path, list, size);
}

ssize_t llistxattr(const char* path, char* list, std::size_t size) noexcept {
    return call<ssize_t>(SYS_llistxattr, path, list, size);
}

void* mmap(void* address, std::size_t length, int prot, int flags, int fd, off_t offset) noexcept {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, address, length, prot, flags, fd, offset));
}

int munmap(void* address, std::size_t length) noexcept {
    return call<int>(SYS_munmap, address, length);
}

void* mremap(void* address, std::size_t old_length, std::size_t new_length, int flags,
             void* new_address) noexcept {
    return reinterpret_cast<void*>(
        ::syscall(SYS_mremap, address, old_length, new_length, flags, new_address));
}

int mprotect(void* address, std::size_t length, int prot) noexcept {
    return call<int>(SYS_mprotect, address, length, prot);
}

int madvise(void* address, std::size_t length, int advice) noexcept {
    return call<int>(SYS_madvise, address, length, advice);
}

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                         const iovec* remote, unsigned long remote_count) noexcept {
    return call<ssize_t>(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, 0UL);
}

ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count,
                          const iovec* remote, unsigned long remote_count) noexcept {
    return call<ssize_t>(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, 0UL);
}

pid_t getpid() noexcept { return call<pid_t>(SYS_getpid); }

pid_t gettid() noexcept { return call<pid_t>(SYS_gettid); }

int kill(pid_t pid, int signal) noexcept { return call<int>(SYS_kill, pid, signal); }

long futex(std::uint32_t* word, int operation, std::uint32_t value,
           const struct timespec* timeout) noexcept {
    SOFTHCA_DEBUG_ASSERT(reinterpret_cast<std::uintptr_t>(word) % sizeof *word == 0);
    return ::syscall(SYS_futex, word, operation, value, timeout, nullptr, 0U);
}

}  // namespace softhca::libc
