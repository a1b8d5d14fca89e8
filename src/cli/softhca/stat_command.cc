// SPDX-License-Identifier: BSD-2-Clause
// `softhca stat`: what a fabric holds, and what it has counted.
#include <cstdio>

#include "cli/softhca/commands.h"
#include "cli/softhca/stat_view.h"

namespace softhca::cli {

void add_stat_command(CLI::App& app, int* status) {
    struct Arguments {
        std::string fabric;
        bool json = false;
    };
    auto arguments = std::make_shared<Arguments>();
    CLI::App* stat = app.add_subcommand("stat", "show the objects and counters of a fabric");
    const CLI::Option* fabric = add_fabric_option(*stat, &arguments->fabric);
    stat->add_flag("--json", arguments->json, "as one JSON object");
    stat->callback([arguments, fabric, status] {
        const view::Snapshot snapshot = view::take_snapshot(fabric_name(*fabric));
        const std::string text =
            arguments->json ? stat_json(snapshot).dump(2) + "\n" : stat_text(snapshot);
        std::fputs(text.c_str(), stdout);
        *status = kSuccess;
    });
}

}  // namespace softhca::cli
