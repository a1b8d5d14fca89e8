// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/counts_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/common/program.h"

namespace heddle::cli {

CountsFile::CountsFile(const std::string& named) : path_(named), temporary_(named.empty()) {
    if (!temporary_) {
        std::error_code nothing_yet;
        const auto size = std::filesystem::file_size(path_, nothing_yet);
        if (!nothing_yet) begin_ = static_cast<std::streamoff>(size);
        return;
    }
    path_ = (std::filesystem::temp_directory_path() / "heddle-stats-XXXXXX").string();
    const int fd = ::mkstemp(path_.data());
    if (fd < 0)
        throw cli_common::ProgramError(cli_common::kRunFailed, path_ + ": " + std::strerror(errno));
    ::close(fd);
}

CountsFile::~CountsFile() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove(path_, ignored);
}

JobCounts CountsFile::read() const {
    std::ifstream file(path_);
    file.seekg(begin_);
    std::ostringstream lines;
    if (file.peek() != std::ifstream::traits_type::eof()) lines << file.rdbuf();
    return job_counts(lines.str());
}

}  // namespace heddle::cli
