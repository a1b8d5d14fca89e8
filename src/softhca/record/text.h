// SPDX-License-Identifier: BSD-2-Clause
// The lines of a run record (docs/reference/run-record.md). Nothing is allocated, because the last
// lines are written while a process ends, perhaps in a signal handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/record/event.h"

namespace softhca::record {

inline constexpr int kSchema = 1;

// Whether libmlx5 takes a lock.
enum class Locked : std::uint8_t { kUnknown, kNo, kYes };

struct CqObject {
    std::uint32_t number = 0, context = 0;
    Locked lock = Locked::kUnknown;
};

inline constexpr std::uint32_t kNoPage = 0xffffffffu, kUnknownUuar = 0xffffffffu;

struct QpObject {
    std::uint32_t number = 0, context = 0;
    std::uint32_t page = kNoPage, uuar = kUnknownUuar;
    std::uint32_t send_cq = 0, depth = 0;
    Locked lock = Locked::kUnknown, uuar_lock = Locked::kUnknown;
};

struct QpTotals {
    std::uint64_t wqes = 0, doorbells = 0, blueflame = 0, payload_reads = 0;
};

// One line, with its newline.
class Line {
public:
    static Line header(const char* program, int pid) noexcept;
    static Line of(const CqObject& cq) noexcept;
    static Line of(const QpObject& qp) noexcept;
    // Runs of a thread: a single run, or a cycle of runs that repeats `times` times.
    static Line of(std::uint32_t thread, std::span<const EventRun> runs,
                   std::uint64_t times) noexcept;
    // The first line of a thread, and the last one of a thread that has ended.
    static Line begins(std::uint32_t thread) noexcept;
    static Line ends(std::uint32_t thread) noexcept;
    static Line truncated(std::uint32_t thread) noexcept;
    static Line qp_totals(std::uint32_t number, const QpTotals& totals) noexcept;
    static Line cq_totals(std::uint32_t number, std::uint64_t cqes) noexcept;

    const char* text() const noexcept { return text_; }
    std::size_t size() const noexcept { return size_; }

private:
    Line() noexcept = default;
    [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) noexcept;
    void add_event(const Event& event) noexcept;

    std::size_t size_ = 0;
    char text_[4096];
};

}  // namespace softhca::record
