// SPDX-License-Identifier: BSD-2-Clause
#include "memory/program_threads.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

namespace heddle::memory {
namespace {

// A scan takes some microseconds for each thread; the look at the kernel that it may spare takes
// less than one.
constexpr unsigned kCallsBetweenScans = 1024;

struct Tasks {
    unsigned all = 0;
    unsigned others = 0;  // that are no service threads
};

bool is_service(const char* task) noexcept {
    char path[64], name[32] = {};
    std::snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool read = ::read(file, name, sizeof name - 1) > 0;
    ::close(file);
    const std::string_view text = name;
    return read && (text.starts_with("heddle-") || text.starts_with("softhca"));
}

Tasks tasks() noexcept {
    Tasks found;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/task"), ::closedir);
    if (directory == nullptr) return found;
    while (const dirent* const entry = ::readdir(directory.get())) {
        if (entry->d_name[0] == '.') continue;
        ++found.all;
        found.others += !is_service(entry->d_name);
    }
    return found;
}

}  // namespace

bool ProgramThreads::find_count() noexcept {
    if (looked_.exchange(true, std::memory_order_relaxed)) return false;
    // Not there before glibc 2.34, unless the program is linked with libpthread.
    const void* const count = ::dlvsym(RTLD_DEFAULT, "__nptl_nthreads", "GLIBC_PRIVATE");
    if (count == nullptr) return false;
    count_.store(static_cast<const unsigned*>(count), std::memory_order_release);
    return only_caller();
}

bool ProgramThreads::scan(unsigned now) noexcept {
    if (unmapping_services_.load(std::memory_order_seq_cst) != 0) return false;
    if (patience_.load(std::memory_order_relaxed) != 0) {
        patience_.fetch_sub(1, std::memory_order_relaxed);  // by two at once: a scan comes late
        return false;
    }
    patience_.store(kCallsBetweenScans, std::memory_order_relaxed);
    const Tasks found = tasks();
    HEDDLE_ASSERT(found.others <= found.all, "each task is counted once");
    // The caller is one of the others.
    if (found.others != 1 || found.all != now) return false;
    // In this order: ServiceUnmaps() counts itself before it stores 0, so one of us sees the other.
    alone_at_.store(now, std::memory_order_seq_cst);
    if (unmapping_services_.load(std::memory_order_seq_cst) != 0) {
        alone_at_.store(0, std::memory_order_seq_cst);
        return false;
    }
    patience_.store(0, std::memory_order_relaxed);  // the next change of the count is looked at
    return true;
}

}  // namespace heddle::memory
