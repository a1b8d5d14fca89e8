// SPDX-License-Identifier: BSD-2-Clause
// A fabric as one process sees it: the mapped segment, the process's slot, joining and leaving. A
// fabric is a file DIRECTORY/NAME.fabric (fabric_directory.h). While processes use it, a folder
// NAME.tree holds what sysfs reports about the device. The last process that leaves removes both.
//
// A process is alive while it holds a write lock on its slot's byte of the file (liveness.h),
// through a close-on-exec descriptor. So exec, exit and SIGKILL all release the lock, a zombie does
// not hold it, and a reused process identifier cannot be mistaken for the process.
#pragma once

#include <fcntl.h>

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

namespace softhca::device {

class Fabric {
public:
    // Joins the fabric that SOFTHCA_FABRIC names, and creates it if it does not exist. Idempotent
    // and thread-safe. On failure it logs the reason and returns nullptr.
    static Fabric* attach() noexcept;
    // The same for the fabric of that name. The environment does not matter.
    static Fabric* attach(const char* name) noexcept;
    // The fabric that this process has joined, or nullptr. Never joins one.
    static Fabric* current() noexcept;

    Segment& segment() noexcept { return *segment_; }
    std::uint32_t slot() const noexcept { return slot_; }
    Process& self() noexcept {
        SOFTHCA_DEBUG_ASSERT(slot_ < kMaxProcesses);
        return segment_->processes[slot_];
    }
    const char* tree_path() const noexcept { return tree_path_.c_str(); }

    // Whether the process of this slot and generation is alive. One system call.
    bool alive(std::uint32_t slot, std::uint32_t generation) noexcept;
    bool alive(std::uint32_t slot) noexcept;
    // Whether that process is gone or about to be (exit, exec), so that nobody can serve accesses
    // to its memory. Several system calls: ask only after an access failed.
    bool going(std::uint32_t slot) noexcept;

    // Frees the objects of every dead process. Cheap if there is none. Returns their number.
    unsigned reclaim_dead() noexcept;

    // Rings the progress threads of all other processes, after a process has joined or left.
    void wake_others() noexcept;

    // Whether the descriptor belongs to softhca, so that the application must not close it.
    bool is_internal_fd(int fd) const noexcept { return fd >= 0 && fd == lock_fd_; }

    // Leaves at exit, and gives everything back that the application left open.
    void leave() noexcept;
    // Leaves at _exit(), which a signal handler may call. It silences this process's QPs, and
    // removes the fabric's files if no other process uses them. Objects are reclaimed later, as
    // those of a killed process. Async-signal-safe.
    void leave_abruptly() noexcept;
    // In a forked child, which has no share in its parent's objects.
    static void forget_after_fork() noexcept;

private:
    bool join(const char* name) noexcept;
    bool open_locked() noexcept;
    void abandon() noexcept;
    void remove_if_last() noexcept;
    bool take_slot() noexcept;

    Segment* segment_ = nullptr;
    std::uint32_t slot_ = kNone;
    int lock_fd_ = -1;
    std::string name_, directory_, segment_path_, tree_path_;
};

std::uint64_t now_ns() noexcept;  // CLOCK_MONOTONIC

}  // namespace softhca::device
