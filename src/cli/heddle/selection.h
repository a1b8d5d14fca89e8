// SPDX-License-Identifier: BSD-2-Clause
// --category and --path of the experiments: which of them are measured, one after the other.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "heddle/category.h"
#include "heddle/post/queues.h"

namespace heddle::cli {

struct Selection {
    std::string category = "all", path = "verbs";

    CLI::Option* add_category(CLI::App& command);
    CLI::Option* add_path(CLI::App& command);

    // Throws CLI::ValidationError.
    std::vector<Category> categories() const;
    std::vector<Path> paths() const;
};

}  // namespace heddle::cli
