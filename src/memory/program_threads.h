// SPDX-License-Identifier: BSD-2-Clause
// Is the calling thread the only one of the program? Then no other thread can be in the middle of a
// munmap(), and a look-up of registered memory need not ask the kernel.
//
// glibc counts threads in __nptl_nthreads, which exists for debuggers (libthread_db,
// td_ta_get_nthreads): pthread_create() increments it before the new thread runs. A scan of
// /proc/self/task finds the service threads by their names: heddle's and those of the software HCA.
// They unmap nothing that a program could use, except while they hold a ServiceUnmaps. As long as
// the count is what it was at that scan, no other thread has come. Where there is no such count
// (another C library), or it is not the number of tasks, the answer is always no.
#pragma once

#include <atomic>

#include "heddle/detail/assert.h"

namespace heddle::memory {

class ProgramThreads {
public:
    // Any thread of the program may call it, but no service thread. Not under
    // AddressMonitor::mutex().
    static bool only_caller() noexcept {
        const unsigned* const count = count_.load(std::memory_order_acquire);
        if (count == nullptr) [[unlikely]]
            return find_count();
        const unsigned now = __atomic_load_n(count, __ATOMIC_ACQUIRE);
        return now == alone_at_.load(std::memory_order_acquire) || scan(now);
    }
    // After a service thread has ended: another thread may make the count what it was.
    static void forget() noexcept { alone_at_.store(0, std::memory_order_release); }

    // While one exists, no thread is the only caller. A service thread has one while it may give
    // memory back to the system, from where a thread of the program could get it at once: free()
    // may trim the heap. Such a thread sees it, since the kernel, or the allocator, gives memory
    // away under a lock.
    class ServiceUnmaps {
    public:
        ServiceUnmaps() noexcept {
            unmapping_services_.fetch_add(1, std::memory_order_seq_cst);
            alone_at_.store(0, std::memory_order_seq_cst);
        }
        ~ServiceUnmaps() {
            const unsigned before = unmapping_services_.fetch_sub(1, std::memory_order_seq_cst);
            HEDDLE_ASSERT(before != 0, "each object was counted when it was made");
        }
        ServiceUnmaps(const ServiceUnmaps&) = delete;
        ServiceUnmaps& operator=(const ServiceUnmaps&) = delete;
    };

private:
    static bool find_count() noexcept;
    static bool scan(unsigned now) noexcept;

    static inline std::atomic<const unsigned*> count_{nullptr};  // glibc's; any thread
    static inline std::atomic<bool> looked_{false};              // for the count; any thread
    static inline std::atomic<unsigned> alone_at_{0};            // 0: no scan has said so
    static inline std::atomic<unsigned> patience_{0};            // calls before the next scan
    static inline std::atomic<unsigned> unmapping_services_{0};  // ServiceUnmaps that exist
};

}  // namespace heddle::memory
