// SPDX-License-Identifier: BSD-2-Clause
// When may an object be reused? Every thread that works on objects of the fabric marks itself as
// inside (an odd value in its epoch record) while it does. Who destroys an object first makes it
// unreachable (state dying), then waits until every thread of every live process that was inside
// has come out (quiescence, as in read-copy-update), then frees it. Dead processes are not waited
// for.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/device/segment.h"

namespace softhca::device {
class Fabric;
}

namespace softhca::device::epoch {

// This thread's record, once it has one. Plain data: reading it needs no initialisation check.
extern thread_local constinit EpochRecord* t_record_fast __attribute__((tls_model("initial-exec")));
[[gnu::cold, gnu::noinline]] EpochRecord* acquire_record() noexcept;
// The same, or nullptr before attach() and when all records are taken.
inline EpochRecord* record() noexcept { return t_record_fast ? t_record_fast : acquire_record(); }

// A fabric whose first process may use membarrier(2) has light epochs: entering one is a plain
// store, and who waits for others has the kernel put a barrier into every thread of them. Decided
// once, in Segment.light_epochs; this is this process's copy, written at attach.
extern bool g_light;
// Before this process has its slot, under the fabric's directory lock.
void prepare(Segment& segment, bool first) noexcept;

// The other half of light_barrier(): pairs with those of all threads of all processes of the
// fabric.
void heavy_barrier(Fabric& fabric) noexcept;
// Orders this thread's stores before its later loads, towards those who call heavy_barrier().
inline void light_barrier() noexcept {
    if (g_light)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    else
        std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Inside an epoch while it lives. Not to be nested.
class Section {
public:
    [[gnu::always_inline]] Section() noexcept : record_(record()) {
        if (!record_) {
            enter_without_record();
            return;
        }
        record_->value.store(record_->value.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
        light_barrier();  // the mark before any look at an object's state
    }
    [[gnu::always_inline]] ~Section() {
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

// Waits until everyone who was inside at the call has come out; must not be called inside. False if
// somebody alive stays inside for seconds (a stopped process): then nothing may be reused.
bool synchronize() noexcept;
// The same, for the threads of this process only.
bool synchronize_own() noexcept;

void forget_after_fork() noexcept;

}  // namespace softhca::device::epoch
