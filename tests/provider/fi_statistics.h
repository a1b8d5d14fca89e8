// SPDX-License-Identifier: BSD-2-Clause
// What the provider counted (FI_HEDDLE_STATS), for tests that run in a process of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace heddle::test {

// Before the first domain of the process is opened.
class Statistics {
public:
    Statistics() {
        std::filesystem::remove(file_);
        setenv("FI_HEDDLE_STATS", file_.c_str(), 1);
    }
    Statistics(const Statistics&) = delete;
    Statistics& operator=(const Statistics&) = delete;
    ~Statistics() { std::filesystem::remove(file_); }
    // After the last was closed.
    nlohmann::json read() const {
        nlohmann::json counts;
        std::ifstream(file_) >> counts;
        return counts;
    }

private:
    const std::string file_ = testing::TempDir() + "stats-" + std::to_string(getpid()) + ".json";
};

}  // namespace heddle::test
