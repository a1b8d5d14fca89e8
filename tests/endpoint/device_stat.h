// SPDX-License-Identifier: BSD-2-Clause
// What `softhca stat` prints for this test's fabric.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace heddle {

// Returns the values of all processes.
inline nlohmann::json fabric_stat() {
    const std::string command = std::string("LD_PRELOAD= ") + std::getenv("SOFTHCA") +
                                " stat --json --fabric " + std::getenv("SOFTHCA_FABRIC");
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;)
        text.push_back(static_cast<char>(c));
    EXPECT_EQ(::pclose(pipe), 0) << command;
    return nlohmann::json::parse(text);
}

// Returns the values of the only process.
inline nlohmann::json device_stat() {
    const auto all = fabric_stat();
    EXPECT_EQ(all["processes"].size(), 1u);
    return all["processes"][0];
}

}  // namespace heddle
