// SPDX-License-Identifier: BSD-2-Clause
// The file of a run record: appending to it.
#pragma once

#include <limits.h>

#include <cstddef>

#include "softhca/device/lock.h"

namespace softhca::record {

// A file that is emptied at the first append. It is opened for each append, because daemons close
// every descriptor that they find. After a failure it warns once and takes nothing more: a full
// disk does not stop the program. Thread-safe.
class RecordFile {
public:
    // Sets the path. Nothing has been appended yet.
    void name(const char* path) noexcept;
    // Appends whole lines. Returns false if the file has failed, now or before.
    bool append(const char* text, std::size_t size) noexcept;
    // The same, but gives up if another thread holds the lock for long. For a process that ends
    // abruptly: the interrupted frame may hold it.
    bool try_append(const char* text, std::size_t size) noexcept;
    // In a forked child, which has a file of its own.
    void forget_after_fork() noexcept;

private:
    bool append_locked(const char* text, std::size_t size) noexcept;

    device::SpinLock lock_;
    bool begun_ = false, failed_ = false;
    char path_[PATH_MAX] = "";
};

}  // namespace softhca::record
