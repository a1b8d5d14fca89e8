// SPDX-License-Identifier: BSD-2-Clause
// The file descriptors that this folder keeps open. They have high numbers, so that the numbers
// which an application expects stay free, and close on exec. An application may still close or
// replace one (closefrom, a raw system call). So each is identified by its inode, and checked
// before a use where a wrong file would do harm.
#pragma once

#include <atomic>
#include <cstdint>

#include <sys/types.h>

namespace softhca::device::memory {

class OwnFd {
public:
    // Takes over the descriptor, and moves it to a high number if the limits allow one. Returns -1
    // and errno if it cannot be kept; then it is closed.
    int adopt(int fd) noexcept;
    int get() const noexcept { return fd_.load(std::memory_order_acquire); }
    // Whether the descriptor still refers to the adopted file.
    bool intact() const noexcept;
    std::uint64_t inode() const noexcept { return inode_; }
    std::uint64_t device() const noexcept { return device_; }
    // Closes the descriptor if it still refers to the adopted file. Async-signal-safe.
    void close() noexcept;

private:
    // Written under the mutex of the object's owner, or in a forked child, which has one thread.
    // Any thread may read it.
    std::atomic<int> fd_{-1};
    std::uint64_t inode_ = 0;   // written before fd_
    std::uint64_t device_ = 0;  // written before fd_
};

// The descriptor of a file below /proc/self. It is opened at the first use, and again if it was
// lost. Not thread-safe.
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
