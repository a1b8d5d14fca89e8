// SPDX-License-Identifier: BSD-2-Clause
// Compresses events: see run_length.h.
#include "softhca/record/run_length.h"

#include <algorithm>
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
    while (period_ != 0 || count_ != 0) {
        if (period_ != 0)
            end_cycle(emit, to);
        else
            make_room(emit, to);
    }
}

void RunLength::complete(const EventRun& run, Emit emit, void* to) noexcept {
    SOFTHCA_DEBUG_ASSERT(run.times != 0, "a run has an event");
    if (period_ != 0) {
        if (run == cycle_[at_]) {
            if (++at_ == period_) {
                at_ = 0;
                ++rounds_;
            }
            return;
        }
        end_cycle(emit, to);
    }
    SOFTHCA_ASSERT(count_ < kWindow, "make_room() leaves room");
    window_[count_++] = run;
    if (count_ == kWindow) make_room(emit, to);
}

// Takes from the front of the window the cycle that covers most of it, or else one run. A cycle
// that covers the whole window may go on.
void RunLength::make_room(Emit emit, void* to) noexcept {
    SOFTHCA_ASSERT(count_ != 0 && period_ == 0, "only the window holds runs");
    std::size_t best = 1, most = 0;
    for (std::size_t period = 2; 2 * period <= count_; ++period) {
        std::size_t covered = period;
        while (covered < count_ && window_[covered] == window_[covered - period])
            ++covered;
        if (covered < 2 * period || covered <= most) continue;
        best = period;
        most = covered;
    }
    if (most == count_) {
        std::copy_n(window_, best, cycle_);
        period_ = best;
        rounds_ = count_ / best;
        at_ = count_ % best;
        count_ = 0;
        return;
    }
    const std::size_t rounds = std::max<std::size_t>(most / best, 1);
    emit(to, {window_, best}, rounds);
    std::copy(window_ + rounds * best, window_ + count_, window_);
    count_ -= rounds * best;
}

void RunLength::end_cycle(Emit emit, void* to) noexcept {
    SOFTHCA_ASSERT(period_ != 0 && at_ < period_ && rounds_ >= 2 && count_ == 0,
                   "a cycle has been seen twice before it is one");
    emit(to, {cycle_, period_}, rounds_);
    count_ = std::exchange(at_, 0);
    std::copy_n(cycle_, count_, window_);
    period_ = 0;
}

}  // namespace softhca::record
