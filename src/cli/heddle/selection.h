// SPDX-License-Identifier: BSD-2-Clause
// --category, --path and --share of the experiments: what is measured, one after the other.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "heddle/category.h"
#include "heddle/post/queues.h"

namespace heddle::cli {

struct Selection {
    std::string category = "all", path = "verbs";
    std::vector<std::string> shares;  // "cq=4": CQs shared 4-way

    CLI::Option* add_category(CLI::App& command);
    CLI::Option* add_path(CLI::App& command);
    CLI::Option* add_share(CLI::App& command);

    // Throws CLI::ValidationError.
    std::vector<Category> categories() const;
    std::vector<Path> paths() const;
    void apply_shares(Sharing& sharing) const;
};

}  // namespace heddle::cli
