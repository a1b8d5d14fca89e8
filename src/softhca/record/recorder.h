// SPDX-License-Identifier: BSD-2-Clause
// The run record of this process: what its threads do with queue pairs, in the form of
// docs/reference/run-record.md. The engine reports objects, events and totals here. Each thread
// collects its own events and writes them to the file in blocks.
//
// A number of a QP or CQ can be used again after the object is destroyed. So all threads write
// their events before the totals of an object: a line belongs to the object of that number that
// was described last.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/record/event.h"
#include "softhca/record/text.h"

namespace softhca::record {

extern std::atomic<bool> g_on;
// Whether a record is written. Everything else here is called only if it is. One load, so it may
// stand on the path of each post.
inline bool on() noexcept { return g_on.load(std::memory_order_relaxed); }

// A number for the cache line of this address: the same line has the same number.
std::int64_t line_of(std::uint64_t address) noexcept;
// A number for a barrier of the program.
std::uint32_t barrier_of(const void* barrier) noexcept;

// Appends an event of the calling thread. Nothing is recorded before the first object.
void add(const Event& event) noexcept;
void add_barrier(const void* barrier) noexcept;

// Describe an object before its first event. Any thread.
void describe(const CqObject& cq) noexcept;
void describe(const QpObject& qp) noexcept;

// An object is destroyed: writes all threads' events, then its totals. No thread uses it any more.
void end_qp(std::uint32_t number, const QpTotals& totals) noexcept;
void end_cq(std::uint32_t number, std::uint64_t cqes) noexcept;

// The process ends. Writes all threads' events, then calls `totals`, which writes those of the
// objects that are left. With kAbruptly the caller may be a signal handler. Then a thread's events
// are lost if its log is in use.
enum class Ending { kOrderly, kAbruptly };
void finish(Ending ending, void (*totals)(Ending)) noexcept;
void write_totals(Ending ending, const Line& line) noexcept;  // for `totals`

// In a forked child, which writes a record of its own.
void forget_after_fork() noexcept;

}  // namespace softhca::record
