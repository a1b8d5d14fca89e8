// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/selection.h"

#include <cstdlib>

#include "heddle/detail/assert.h"

namespace heddle::cli {

CLI::Option* Selection::add_category(CLI::App& command) {
    return command.add_option("--category", category, "all, or one: see `heddle plan`");
}

CLI::Option* Selection::add_path(CLI::App& command) {
    return command.add_option("--path", path, "verbs, direct or both")
        ->check(CLI::IsMember({"verbs", "direct", "both"}));
}

CLI::Option* Selection::add_share(CLI::App& command) {
    return command.add_option(
        "--share", shares,
        "RESOURCE=WAYS: context, pd, mr, cq, qp or buffer shared by so many threads, whatever the "
        "category; may be repeated");
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

void Selection::apply_shares(Sharing& sharing) const {
    for (const std::string& text : shares) {
        const std::size_t equals = text.find('=');
        const std::string what = text.substr(0, equals);
        const int sharers = equals == std::string::npos ? 0 : std::atoi(text.c_str() + equals + 1);
        std::uint32_t* const place = what == "context"  ? &sharing.context
                                     : what == "pd"     ? &sharing.pd
                                     : what == "mr"     ? &sharing.mr
                                     : what == "cq"     ? &sharing.cq
                                     : what == "qp"     ? &sharing.qp
                                     : what == "buffer" ? &sharing.buffer
                                                        : nullptr;
        if (place == nullptr || sharers < 1)
            throw CLI::ValidationError(
                "--share " + text +
                ": RESOURCE=WAYS, where RESOURCE is context, pd, mr, cq, qp or buffer");
        *place = static_cast<std::uint32_t>(sharers);
    }
}

}  // namespace heddle::cli
