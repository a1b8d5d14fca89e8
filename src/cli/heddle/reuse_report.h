// SPDX-License-Identifier: BSD-2-Clause
// heddle run --reuse-report: how a program's small messages were sent, and how often it used its
// buffers (Tables 1 and 3 of "Exploiting application buffer reuse"), from what its processes wrote
// at their end.
#pragma once

#include <string>

#include "cli/heddle/job_counts.h"

namespace heddle::cli {

std::string reuse_report(const JobCounts& job);

// In a sentence: whether the program gains by reuse, and what to change.
std::string reuse_conclusion(const JobCounts& job);

// Buffers in the tables that were used often, and all of them.
struct BufferUse {
    static constexpr std::uint64_t kOften = 64;
    std::uint64_t often = 0, all = 0;
};
BufferUse buffer_use(const JobCounts& job);

}  // namespace heddle::cli
