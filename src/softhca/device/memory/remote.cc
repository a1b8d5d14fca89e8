// SPDX-License-Identifier: BSD-2-Clause
// Copies between processes by system calls: see remote.h. The access rules are those of ptrace(2),
// "Ptrace access mode checking".

#include "softhca/device/memory/remote.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"

namespace softhca::device::memory {

namespace {

enum class Direction { kTo, kFrom };

std::atomic<bool> g_refused{false};  // set by any thread, never reset

// A vector that is consumed from its front.
class Cursor {
public:
    Cursor(const iovec* vector, unsigned count) noexcept : vector_(vector), count_(count) {}

    // Whether the vector holds that many bytes. A sum could wrap, because the application sets the
    // lengths.
    bool holds(std::size_t bytes) const noexcept {
        for (unsigned i = 0; i < count_ && bytes > 0; ++i)
            bytes -= std::min(bytes, vector_[i].iov_len);
        return bytes == 0;
    }

    // The next entries, of at most `limit` bytes. Returns their number of bytes.
    template <std::size_t N>
    std::size_t window(std::array<iovec, N>* out, unsigned* entries,
                       std::size_t limit) const noexcept {
        std::size_t bytes = 0;
        std::size_t skip = offset_;
        *entries = 0;
        for (unsigned i = index_; i < count_ && *entries < N && bytes < limit; ++i) {
            const std::size_t length = std::min(vector_[i].iov_len - skip, limit - bytes);
            if (length > 0) {
                (*out)[(*entries)++] = {static_cast<char*>(vector_[i].iov_base) + skip, length};
                bytes += length;
            }
            skip = 0;
        }
        return bytes;
    }

    void advance(std::size_t bytes) noexcept {
        while (bytes > 0) {
            SOFTHCA_ASSERT(index_ < count_);
            const std::size_t step = std::min(bytes, vector_[index_].iov_len - offset_);
            bytes -= step;
            offset_ += step;
            if (offset_ == vector_[index_].iov_len) {
                ++index_;
                offset_ = 0;
            }
        }
    }

private:
    const iovec* vector_;
    unsigned count_;
    unsigned index_ = 0;
    std::size_t offset_ = 0;  // into vector_[index_]
};

// Far below IOV_MAX: the kernel copies the vectors in, and most copies have one entry.
constexpr unsigned kMaxEntries = 64;
constexpr std::size_t kLargestCall = std::size_t{1} << 30;  // the kernel allows nearly 2 GiB

void explain_refusal(pid_t pid, int error) noexcept {
    if (g_refused.exchange(true, std::memory_order_relaxed)) return;
    char scope = '?';
    const int yama = libc::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    if (yama >= 0) {
        if (libc::read(yama, &scope, 1) != 1) scope = '?';
        libc::close(yama);
    }
    char yama_cause[] = "kernel.yama.ptrace_scope is ?";
    const char* cause = yama_cause;
    if (scope >= '1' && scope <= '3')
        yama_cause[sizeof yama_cause - 2] = scope;
    else if (error == ENOSYS)
        cause = "seccomp filters the system call out";
    else
        cause =
            "the cause may be a container without CAP_SYS_PTRACE, a seccomp filter, a process that "
            "is not dumpable, or one of another user";
    LOG_ERROR(
        "the system refuses copies between the memory of this process and of process %d: %s. "
        "Shared memory still works: with SOFTHCA_MEMORY=auto, private anonymous memory (malloc, "
        "mmap) is shared. For all other memory allow the copies: --cap-add SYS_PTRACE for a "
        "container, kernel.yama.ptrace_scope=0 for a host",
        pid, cause);
}

// One step through the file of the other process's memory. Returns bytes copied, or -1 and errno.
ssize_t through_file(Direction direction, int file, const iovec& local,
                     const iovec& remote) noexcept {
    const std::size_t bytes = std::min(local.iov_len, remote.iov_len);
    const auto where = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(remote.iov_base));
    const ssize_t done = direction == Direction::kTo
                             ? libc::pwrite(file, local.iov_base, bytes, where)
                             : libc::pread(file, local.iov_base, bytes, where);
    if (done < 0 && errno == EIO) errno = EFAULT;  // this file's error for an unmapped address
    return done;
}

int copy(Direction direction, pid_t pid, Cursor local, Cursor remote, std::size_t bytes) noexcept {
    if (!local.holds(bytes) || !remote.holds(bytes)) return EINVAL;
    int file = -1;  // of the other memory, after the system calls were refused
    int error = 0;
    while (bytes > 0) {
        std::array<iovec, kMaxEntries> here, there;
        unsigned here_count, there_count;
        const std::size_t limit = std::min(bytes, kLargestCall);
        const std::size_t size = std::min(local.window(&here, &here_count, limit),
                                          remote.window(&there, &there_count, limit));
        // Both windows must have one size, so the shorter one decides.
        local.window(&here, &here_count, size);
        remote.window(&there, &there_count, size);
        SOFTHCA_ASSERT(here_count > 0 && there_count > 0 && size <= bytes);
        ssize_t done;
        if (file >= 0)
            done = through_file(direction, file, here[0], there[0]);
        else if (direction == Direction::kTo)
            done = libc::process_vm_writev(pid, here.data(), here_count, there.data(), there_count);
        else
            done = libc::process_vm_readv(pid, here.data(), here_count, there.data(), there_count);
        if (done > 0) {
            SOFTHCA_ASSERT(static_cast<std::size_t>(done) <= bytes);
            local.advance(static_cast<std::size_t>(done));
            remote.advance(static_cast<std::size_t>(done));
            bytes -= static_cast<std::size_t>(done);
            continue;
        }
        error = done == 0 ? EFAULT : errno;
        if (error == EINTR) {
            error = 0;
            continue;
        }
        if (file < 0 && (error == EPERM || error == ENOSYS)) {
            const int refusal = error;
            char path[40];
            std::snprintf(path, sizeof path, "/proc/%d/mem", pid);
            file = libc::open(path, (direction == Direction::kTo ? O_RDWR : O_RDONLY) | O_CLOEXEC);
            if (file >= 0) {
                error = 0;
                continue;
            }
            error = errno == ENOENT ? ESRCH : EPERM;
            if (error == EPERM) explain_refusal(pid, refusal);
        }
        break;
    }
    if (file >= 0) libc::close(file);
    return error;
}

}  // namespace

int copy_to(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
            std::size_t bytes) noexcept {
    return copy(Direction::kTo, pid, {local, nlocal}, {remote, nremote}, bytes);
}

int copy_from(pid_t pid, const iovec* local, unsigned nlocal, const iovec* remote, unsigned nremote,
              std::size_t bytes) noexcept {
    return copy(Direction::kFrom, pid, {local, nlocal}, {remote, nremote}, bytes);
}

bool is_ending(pid_t pid) noexcept {
    char path[32], text[512];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int file = libc::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT || errno == ESRCH;
    const ssize_t length = libc::read(file, text, sizeof text - 1);
    const bool gone = length < 0 && errno == ESRCH;
    libc::close(file);
    if (length <= 0) return gone;
    text[length] = '\0';
    // proc_pid_stat(5): the name in parentheses may contain any character. The state follows it,
    // and six numbers later the flags (PF_EXITING of the kernel's include/linux/sched.h).
    constexpr unsigned kExiting = 4;
    const char* rest = std::strrchr(text, ')');
    char state;
    unsigned flags;
    if (!rest || std::sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
        return false;
    return state == 'Z' || state == 'X' || (flags & kExiting);
}

bool copy_refused() noexcept { return g_refused.load(std::memory_order_relaxed); }

}  // namespace softhca::device::memory
