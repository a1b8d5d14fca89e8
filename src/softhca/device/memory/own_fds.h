// SPDX-License-Identifier: BSD-2-Clause
// The file descriptors that this folder keeps open. They live at high numbers, so that the numbers
// an application expects are free, and close on exec. An application may still close or replace one
// (closefrom, a raw system call), so each is known by its inode and looked at before it is used
// where a wrong file would do harm.
#pragma once

#include <atomic>
#include <cstdint>

#include <sys/types.h>

namespace softhca::device::memory {

class OwnFd {
public:
    // Takes the descriptor over, under a high number where the limits allow one.
    // -1 and errno when it cannot be kept (it is closed then).
    int adopt(int fd) noexcept;
    int get() const noexcept { return fd_.load(std::memory_order_acquire); }
    // Is it still the file that was adopted?
    bool intact() const noexcept;
    std::uint64_t inode() const noexcept { return inode_; }
    std::uint64_t device() const noexcept { return device_; }
    // Closes it, if it is still ours. Async-signal-safe.
    void close() noexcept;

private:
    // Written under the mutex of whoever holds the object (and in a forked child, alone); read by
    // anyone.
    std::atomic<int> fd_{-1};
    std::uint64_t inode_ = 0;   // written before fd_
    std::uint64_t device_ = 0;  // written before fd_
};

// A descriptor of a file below /proc/self, opened at first use and again when it was lost.
// Not thread-safe: callers hold the sharing mutex.
class ProcFile {
public:
    explicit constexpr ProcFile(const char* path, int flags) noexcept
        : path_(path), flags_(flags) {}
    int get() noexcept;  // -1 and errno
    int number() const noexcept { return own_.get(); }
    void close() noexcept { own_.close(); }

private:
    OwnFd own_;
    const char* path_;
    int flags_;
};

}  // namespace softhca::device::memory
