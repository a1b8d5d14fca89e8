// SPDX-License-Identifier: BSD-2-Clause
// The file in which the processes of a job leave their counts (FI_HEDDLE_STATS).
#pragma once

#include <ios>
#include <string>

#include "cli/heddle/job_counts.h"

namespace heddle::cli {

// A temporary file, or the one that the user named, of which only what this job appends is read.
class CountsFile {
public:
    // named: empty for a temporary file. Throws cli_common::ProgramError.
    explicit CountsFile(const std::string& named);
    ~CountsFile();
    CountsFile(const CountsFile&) = delete;
    CountsFile& operator=(const CountsFile&) = delete;
    const std::string& path() const { return path_; }
    JobCounts read() const;

private:
    std::string path_;
    bool temporary_;
    std::streamoff begin_ = 0;
};

}  // namespace heddle::cli
