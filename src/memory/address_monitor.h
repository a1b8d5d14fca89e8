// SPDX-License-Identifier: BSD-2-Clause
// Tells listeners which memory of this process is unmapped, moved or thrown away: by munmap(),
// mremap(), brk(), madvise() or a mapping over another, in a system call of whatever library. The
// kernel reports it through userfaultfd(2), "UFFD_FEATURE_EVENT_*". The thread that unmaps waits
// until a thread of the monitor has read the event, and that thread reads with the mutex held. So a
// thread that takes the mutex after a munmap() has returned sees what the listeners made of it.
//
// Under the mutex no thread may give memory back to the system, or do anything that might (free(),
// ibv_dereg_mr()): the kernel would make it wait for the monitor's thread, which waits for the
// mutex. So a second thread ends what belonged to memory that is gone, a moment later
// (end_later()).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "memory/program_threads.h"

namespace heddle::memory {

class AddressMonitor {
public:
    class Listener {
    public:
        virtual ~Listener() = default;
        // The memory of [begin, end) is gone, or moved. The caller holds the mutex.
        virtual void gone(std::uintptr_t begin, std::uintptr_t end) noexcept = 0;
        // Does the listener need events of any part of [begin, end)? The caller holds the mutex.
        virtual bool wants(std::uintptr_t begin, std::uintptr_t end) const noexcept = 0;
        // Ends what belonged to memory that is gone. The monitor's second thread calls this after
        // end_later(), without the mutex.
        virtual void end_gone() noexcept {}

    private:
        friend class AddressMonitor;
        Listener* next_ = nullptr;
    };

    AddressMonitor() = default;
    ~AddressMonitor();
    AddressMonitor(const AddressMonitor&) = delete;
    AddressMonitor& operator=(const AddressMonitor&) = delete;

    std::mutex& mutex() noexcept { return mutex_; }
    // Have the listeners heard of all memory that was gone before the call? If so, what they have
    // marked is complete, and memory that the caller sees is what they know. False: perhaps not.
    // Any thread of the program may call it, without the mutex.
    //
    // A thread that unmaps waits for us only after the kernel has let go of the address space
    // (mm/mmap.c, __vm_munmap). Another thread may map new memory at the same address, and ask us
    // about it, before the event can be seen. So this asks the kernel, too, unless the caller is
    // the only thread of the program.
    bool settled() const noexcept {
        if (!ProgramThreads::only_caller() && unmapping()) return false;
        // In this order: the thread begins to read an event after it has set the flag.
        return !changing_.load(std::memory_order_seq_cst);
    }
    // Is another thread in the middle of unmapping, or throwing away, memory that is watched? From
    // before the memory is gone until its event has been read. A system call. Any thread.
    bool unmapping() const noexcept;
    // Both take the mutex. remove() returns when no end_gone() of the listener is running.
    void add(Listener& listener) noexcept;
    void remove(Listener& listener) noexcept;

    // Why nothing can be watched in this process, and what helps; empty: it can. Asks the kernel.
    static std::string why_not();
    // Can anything be watched? The first call starts the thread. Any thread; not under the mutex.
    bool ready() noexcept;
    // From now on the listeners hear of changes of these whole pages, until they are gone. False:
    // the kernel reports no changes of this memory (of files, most of all). Needs ready(); the
    // caller holds the mutex.
    bool watch(std::uintptr_t begin, std::uintptr_t end) noexcept;
    // Ends watch() for these whole pages, unless a listener wants any of them. The caller holds
    // the mutex.
    void unwatch(std::uintptr_t begin, std::uintptr_t end) noexcept;

    // Asks for end_gone() of all listeners, within kEndingDelayMs. The caller holds the mutex;
    // gone() may call it, too.
    void end_later() noexcept;
    // Waits for end_gone() calls that are running. False: none was. Any thread but the monitor's
    // two; not under the mutex.
    bool wait_for_ending() noexcept;

    // Milliseconds. The second thread wakes at most once in that time, and not at all while nothing
    // is unmapped.
    static constexpr int kEndingDelayMs = 500;

private:
    bool open() noexcept;
    void run() noexcept;
    void read_events() noexcept;
    void run_ending() noexcept;
    bool is_forked() const noexcept;

    std::mutex mutex_;
    std::mutex ending_mutex_;  // held during end_gone(); taken before mutex_
    // The first thread writes it: true before it reads an event, false after all listeners have
    // heard of it.
    std::atomic<bool> changing_{false};
    Listener* listeners_ = nullptr;  // written under both mutexes
    bool ending_ = false;            // under mutex_: end_later() since the last end_gone()
    std::once_flag once_;
    // Written by ready(), once. The first thread writes uffd_ again at its end, under mutex_.
    std::atomic<int> uffd_{-1};  // read by any thread
    int stop_ = -1;
    int wake_ending_ = -1;  // an eventfd, of the second thread
    std::atomic<bool> stop_ending_{false};
    std::thread thread_, ending_thread_;
    std::atomic<pid_t> pid_{0};  // in a forked child there is no thread
};

}  // namespace heddle::memory
