// SPDX-License-Identifier: BSD-2-Clause
// A fabric as one process sees it: the mapped segment, the process's slot in it, and joining and
// leaving. A fabric is a file DIRECTORY/NAME.fabric (fabric_directory.h) and, while anyone uses
// it, a folder NAME.tree with what sysfs says of the device. The last process to leave removes
// both.
//
// Liveness is a lock on one byte of the file for each process slot (liveness.h), held through a
// close-on-exec descriptor: exec, exit and SIGKILL all release it, a zombie does not hold it, and
// no process identifier can be mistaken.
#pragma once

#include <fcntl.h>

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "softhca/device/segment.h"

namespace softhca::device {

class Fabric {
public:
    // Joins the fabric that SOFTHCA_FABRIC names, making it when it is not there. Idempotent and
    // thread-safe; nullptr, with the reason logged once, when it cannot be had.
    static Fabric* attach() noexcept;
    // The same for the fabric of that name, whatever the environment says.
    static Fabric* attach(const char* name) noexcept;
    // The fabric this process has joined, or nullptr. Never joins.
    static Fabric* current() noexcept;

    Segment& segment() noexcept { return *segment_; }
    std::uint32_t slot() const noexcept { return slot_; }
    Process& self() noexcept { return segment_->processes[slot_]; }
    const char* tree_path() const noexcept { return tree_path_.c_str(); }

    // Is the process of this slot and generation still there? One system call.
    bool alive(std::uint32_t slot, std::uint32_t generation) noexcept;
    bool alive(std::uint32_t slot) noexcept;
    // Why an access to the memory of that process failed: it is gone or about to be (exit, exec),
    // so that nobody can answer for it. Several system calls; for failures only.
    bool going(std::uint32_t slot) noexcept;

    // Frees the objects of every process that is gone. Cheap when none is. Returns how many were.
    unsigned reclaim_dead() noexcept;

    // Rings every other process's progress thread: somebody has come or gone.
    void wake_others() noexcept;

    // Descriptors that belong to softhca and that the application must not close.
    bool is_internal_fd(int fd) const noexcept { return fd >= 0 && fd == lock_fd_; }

    // At exit, and in a forked child (which has no share in the parent's objects).
    void leave() noexcept;
    // At _exit(), perhaps in a signal handler: silences its QPs, and takes the fabric's files away
    // when nobody else is in it. Objects go as those of a process that was killed.
    // Async-signal-safe.
    void leave_abruptly() noexcept;
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
