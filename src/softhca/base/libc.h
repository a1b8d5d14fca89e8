// SPDX-License-Identifier: BSD-2-Clause
// The functions beneath the interposed ones. softhca's own code calls these, never the libc names
// that preload/ defines. Each is the bare system call. So neither our interposers nor another
// library's memory hooks (UCX patches mmap and munmap) see softhca's own calls.
//
// Each returns what the libc function of that name returns, and sets errno. All are
// async-signal-safe and may run before any constructor. None is a cancellation point.
#pragma once

#include <cstddef>
#include <cstdint>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace softhca::libc {

// Files
int open(const char* path, int flags, mode_t mode = 0) noexcept;
int openat(int directory, const char* path, int flags, mode_t mode = 0) noexcept;
int close(int fd) noexcept;
int close_range(unsigned first, unsigned last, unsigned flags) noexcept;
ssize_t read(int fd, void* buffer, std::size_t size) noexcept;
ssize_t write(int fd, const void* buffer, std::size_t size) noexcept;
ssize_t pread(int fd, void* buffer, std::size_t size, off_t offset) noexcept;
ssize_t pwrite(int fd, const void* buffer, std::size_t size, off_t offset) noexcept;
ssize_t readv(int fd, const iovec* vector, int count) noexcept;
ssize_t writev(int fd, const iovec* vector, int count) noexcept;
off_t lseek(int fd, off_t offset, int whence) noexcept;
int ftruncate(int fd, off_t length) noexcept;
int fallocate(int fd, int mode, off_t offset, off_t length) noexcept;
int ioctl(int fd, unsigned long request, void* argument) noexcept;
int fcntl(int fd, int command, long argument = 0) noexcept;
int fcntl(int fd, int command, void* argument) noexcept;  // locks (struct flock *)
int dup(int fd) noexcept;
int dup2(int fd, int target) noexcept;
int dup3(int fd, int target, int flags) noexcept;
int pipe2(int fds[2], int flags) noexcept;
int eventfd(unsigned value, int flags) noexcept;
int memfd_create(const char* name, unsigned flags) noexcept;
int socket(int domain, int type, int protocol) noexcept;
// Both work on the peer that the socket is connected to.
ssize_t sendto(int fd, const void* buffer, std::size_t size, int flags) noexcept;
ssize_t recvfrom(int fd, void* buffer, std::size_t size, int flags) noexcept;
int poll(pollfd* fds, nfds_t count, int timeout_ms) noexcept;

// Names
int stat(const char* path, struct stat* out) noexcept;
int lstat(const char* path, struct stat* out) noexcept;
int fstat(int fd, struct stat* out) noexcept;
int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept;
int statx(int directory, const char* path, int flags, unsigned mask, struct statx* out) noexcept;
int statfs(const char* path, struct statfs* out) noexcept;
int fstatfs(int fd, struct statfs* out) noexcept;
int faccessat(int directory, const char* path, int mode) noexcept;
int faccessat2(int directory, const char* path, int mode, int flags) noexcept;
ssize_t readlink(const char* path, char* buffer, std::size_t size) noexcept;
ssize_t readlinkat(int directory, const char* path, char* buffer, std::size_t size) noexcept;
int mkdir(const char* path, mode_t mode) noexcept;
int mkdirat(int directory, const char* path, mode_t mode) noexcept;
int rmdir(const char* path) noexcept;
int unlink(const char* path) noexcept;
int unlinkat(int directory, const char* path, int flags) noexcept;
int rename(const char* from, const char* to) noexcept;
int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept;
int symlinkat(const char* target, int directory, const char* path) noexcept;
int fchmod(int fd, mode_t mode) noexcept;
int chdir(const char* path) noexcept;
int fchdir(int fd) noexcept;
ssize_t getcwd(char* buffer, std::size_t size) noexcept;  // length without the NUL, or -1
ssize_t getdents64(int fd, void* buffer, std::size_t size) noexcept;  // fills struct dirent64
int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept;
ssize_t getxattr(const char* path, const char* name, void* value, std::size_t size) noexcept;
ssize_t lgetxattr(const char* path, const char* name, void* value, std::size_t size) noexcept;
ssize_t listxattr(const char* path, char* list, std::size_t size) noexcept;
ssize_t llistxattr(const char* path, char* list, std::size_t size) noexcept;

// Memory
void* mmap(void* address, std::size_t length, int prot, int flags, int fd, off_t offset) noexcept;
int munmap(void* address, std::size_t length) noexcept;
void* mremap(void* address, std::size_t old_length, std::size_t new_length, int flags,
             void* new_address = nullptr) noexcept;
int mprotect(void* address, std::size_t length, int prot) noexcept;
int madvise(void* address, std::size_t length, int advice) noexcept;
// Advice values of Linux 5.14, which some distributions' headers lack.
constexpr int kMadvPopulateRead = 22, kMadvPopulateWrite = 23;
ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                         const iovec* remote, unsigned long remote_count) noexcept;
ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count,
                          const iovec* remote, unsigned long remote_count) noexcept;

// Processes
pid_t getpid() noexcept;  // asks the kernel each time, so it is right in a vfork child too
pid_t gettid() noexcept;
int kill(pid_t pid, int signal) noexcept;
long futex(std::uint32_t* word, int operation, std::uint32_t value,
           const struct timespec* timeout = nullptr) noexcept;

}  // namespace softhca::libc
