// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/selection.h"

#include "heddle/detail/assert.h"

namespace heddle::cli {

CLI::Option* Selection::add_category(CLI::App& command) {
    return command.add_option("--category", category, "all, or one: see `heddle plan`");
}

CLI::Option* Selection::add_path(CLI::App& command) {
    return command.add_option("--path", path, "verbs, direct or both")
        ->check(CLI::IsMember({"verbs", "direct", "both"}));
}

std::vector<Category> Selection::categories() const {
    std::vector<Category> all;
    for (const Category c : kCategories)
        if (category == "all" || category == name(c)) all.push_back(c);
    if (all.empty())
        throw CLI::ValidationError("--category " + category + ": there is no such category");
    return all;
}

std::vector<Path> Selection::paths() const {
    std::vector<Path> all;
    if (path != "direct") all.push_back(Path::kVerbs);
    if (path != "verbs") all.push_back(Path::kDirect);
    HEDDLE_ASSERT(all.size() == (path == "both" ? 2u : 1u), "--path takes no other words");
    return all;
}

}  // namespace heddle::cli
