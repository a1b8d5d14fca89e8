// SPDX-License-Identifier: BSD-2-Clause
// Epochs decide when an object may be reused. A thread marks itself as inside, by an odd value in
// its epoch record, while it works on objects of the fabric. Destroying an object takes three
// steps:
// 1. The state becomes dying, so the object is unreachable for new users.
// 2. The destroyer waits until every thread of every live process that was inside has left
//    (quiescence, as in read-copy-update). It does not wait for dead processes.
// 3. It frees the object.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

namespace softhca::device {
class Fabric;
}

namespace softhca::device::epoch {

// This thread's record, or nullptr before it has one. It is plain data, so reading it needs no
// initialisation check.
extern thread_local constinit EpochRecord* t_record_fast __attribute__((tls_model("initial-exec")));
[[gnu::cold, gnu::noinline]] EpochRecord* acquire_record() noexcept;
// Takes a record at the first call. nullptr before attach() and when all records are taken.
inline EpochRecord* record() noexcept { return t_record_fast ? t_record_fast : acquire_record(); }
#if SOFTHCA_DEBUG_ASSERTIONS
inline thread_local constinit unsigned t_sections = 0;  // Sections of this thread: 0 or 1
#endif

// If the fabric's first process may use membarrier(2), the fabric has light epochs: entering an
// epoch is a plain store, and a thread that waits for others makes the kernel execute a barrier in
// all of their threads. The first process decides, in Segment.light_epochs. This is the process's
// copy, written at attach.
extern bool g_light;
// Call this before the process has its slot, under the fabric's directory lock.
void prepare(Segment& segment, bool first) noexcept;

// The other half of light_barrier(). It pairs with light_barrier() in all threads of all processes
// of the fabric.
void heavy_barrier(Fabric& fabric) noexcept;
// Orders this thread's stores before its later loads, as seen by callers of heavy_barrier().
inline void light_barrier() noexcept {
    if (g_light)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    else
        std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The thread is inside an epoch while a Section exists. Sections do not nest.
class Section {
public:
    [[gnu::always_inline]] Section() noexcept : record_(record()) {
#if SOFTHCA_DEBUG_ASSERTIONS
        SOFTHCA_DEBUG_ASSERT(t_sections == 0, "Sections do not nest");
        ++t_sections;
#endif
        if (!record_) {
            enter_without_record();
            return;
        }
        record_->value.store(record_->value.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
        light_barrier();  // the mark comes before any load of an object's state
    }
    [[gnu::always_inline]] ~Section() {
#if SOFTHCA_DEBUG_ASSERTIONS
        SOFTHCA_DEBUG_ASSERT(t_sections == 1);
        --t_sections;
#endif
        if (record_)
            record_->value.store(record_->value.load(std::memory_order_relaxed) + 1,
                                 std::memory_order_release);
        else
            leave_without_record();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

private:
    [[gnu::cold, gnu::noinline]] void enter_without_record() noexcept;
    [[gnu::cold, gnu::noinline]] void leave_without_record() noexcept;
    EpochRecord* record_;
};

// Waits until every thread that was inside at the call has left. The caller must be outside.
// Returns false if a live thread stays inside for two seconds, such as one of a stopped process:
// then nothing may be reused.
bool synchronize() noexcept;
// The same, for the threads of this process only.
bool synchronize_own() noexcept;

void forget_after_fork() noexcept;

}  // namespace softhca::device::epoch
