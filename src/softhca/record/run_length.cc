// SPDX-License-Identifier: BSD-2-Clause
// Compresses events: see run_length.h.
#include "softhca/record/run_length.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "softhca/base/assert.h"

namespace softhca::record {

void RunLength::add(const Event& event, Emit emit, void* to) noexcept {
    if (current_.times != 0 && current_.event == event) {
        ++current_.times;
        return;
    }
    if (current_.times != 0) complete(current_, emit, to);
    current_ = {event, 1};
}

void RunLength::flush(Emit emit, void* to) noexcept {
    if (current_.times != 0) complete(current_, emit, to);
    current_.times = 0;
    // The first runs of an unfinished round may themselves repeat, so a cycle may follow a cycle.
    while (period_ != 0)
        end_cycle(emit, to);
    emit_pending(pending_count_, emit, to);
}

void RunLength::complete(const EventRun& run, Emit emit, void* to) noexcept {
    SOFTHCA_DEBUG_ASSERT(run.times != 0, "a run has an event");
    while (period_ != 0) {
        if (run == cycle_[at_]) {
            if (++at_ == period_) {
                at_ = 0;
                ++rounds_;
            }
            return;
        }
        end_cycle(emit, to);
    }
    append(run, emit, to);
}

void RunLength::append(const EventRun& run, Emit emit, void* to) noexcept {
    SOFTHCA_ASSERT(period_ == 0, "a run is pending only outside a cycle");
    if (pending_count_ == std::size(pending_)) emit_pending(1, emit, to);
    pending_[pending_count_++] = run;
    for (std::size_t period = 2; 2 * period <= pending_count_; ++period) {
        const EventRun* end = pending_ + pending_count_;
        if (!std::equal(end - period, end, end - 2 * period)) continue;
        emit_pending(pending_count_ - 2 * period, emit, to);
        std::copy_n(pending_, period, cycle_);
        pending_count_ = 0;
        period_ = period;
        rounds_ = 2;
        at_ = 0;
        return;
    }
}

void RunLength::emit_pending(std::size_t count, Emit emit, void* to) noexcept {
    SOFTHCA_ASSERT(count <= pending_count_, "only what waits can be emitted");
    for (std::size_t i = 0; i < count; ++i)
        emit(to, {pending_ + i, 1}, 1);
    std::copy(pending_ + count, pending_ + pending_count_, pending_);
    pending_count_ -= count;
}

void RunLength::end_cycle(Emit emit, void* to) noexcept {
    SOFTHCA_ASSERT(period_ != 0 && at_ < period_ && rounds_ >= 2 && pending_count_ == 0,
                   "a cycle has been seen twice before it is one");
    emit(to, {cycle_, period_}, rounds_);
    EventRun rest[kMostInCycle];
    const std::size_t count = std::exchange(at_, 0);
    std::copy_n(cycle_, count, rest);
    period_ = 0;
    for (std::size_t i = 0; i < count; ++i)
        complete(rest[i], emit, to);
}

}  // namespace softhca::record
