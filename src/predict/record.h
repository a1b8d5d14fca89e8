// SPDX-License-Identifier: BSD-2-Clause
// Run records of `softhca run --record` (docs/reference/run-record.md) as workloads of the model.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/category.h"
#include "predict/machine.h"
#include "predict/workload.h"

namespace heddle::predict {

struct RecordError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What a process did, in the model's words.
struct Record {
    struct Qp {
        std::uint32_t context = 0, page = 0, uuar = 0, cq = 0;  // cq: index into `cqs`
        std::uint32_t depth = 0;                                // WQEs that the program asked for
        bool has_lock = true, has_uuar_lock = false;
    };
    struct Cq {
        std::uint64_t signaled = 0, polled = 0;  // CQEs that posts asked for; that threads took
    };
    // Sums of the record's lines, and the device's own counters.
    struct Totals {
        std::uint64_t wqes = 0, doorbells = 0, blueflame = 0;
    };
    std::string program;
    std::vector<Qp> qps;  // that were posted to, in the order of their first doorbell
    std::vector<Cq> cqs;
    // By thread; a thread that went on with the queue pairs of one that had ended is the same one.
    std::vector<std::vector<Step>> threads;  // Step::queue is an index into `qps`
    Totals posted, counted;
    std::uint64_t reads = 0;       // WQEs whose data come back, for which the model has no cost
    std::uint64_t most_bytes = 0;  // of a message, on average of its post
    bool is_truncated = false;     // a thread has filled its limit of lines
    bool has_totals = false;       // of every QP
};

// Steps that a record may have when its cycles are written out.
inline constexpr std::uint64_t kMostSteps = 4'000'000;

// `where` names the record in errors. @throw RecordError with the line, if it is no record, or has
//   more than kMostSteps steps
Record parse_record(std::istream& in, const std::string& where);
// @throw RecordError also if the file cannot be read
Record read_record(const std::string& path);

// The queue pairs that a thread posts to, in the order of their first doorbells.
std::vector<std::uint32_t> queues_of(const std::vector<Step>& steps);

// The processes of a job as they were recorded.
Workload workload_of(const std::vector<Record>& records, const Machine& machine);

// The same posts and waits with the endpoints of a category in each process. Nothing if that cannot
// be: each queue pair needs a thread that posts more to it than all others. What others post to it
// is left out, as are queue pairs without such a thread, and threads that post next to nothing. All
// that is left out may be at most a twentieth of a process's WQEs.
std::optional<Workload> workload_of(const std::vector<Record>& records, Category category,
                                    const Machine& machine);

}  // namespace heddle::predict
