// SPDX-License-Identifier: BSD-2-Clause
// `softhca list`: the fabrics of this user.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/common/text.h"
#include "cli/softhca/commands.h"
#include "softhca/base/assert.h"
#include "softhca/view/fabric_file.h"
#include "softhca/view/snapshot.h"

namespace softhca::cli {
namespace {

struct FabricUse {
    std::string name;
    std::uint64_t live = 0, dead = 0;
    std::string commands;
};

std::vector<FabricUse> fabrics() {
    std::vector<FabricUse> uses;
    for (const std::string& name : view::fabric_names()) {
        FabricUse use;
        use.name = name;
        if (const std::unique_ptr<view::FabricFile> file = view::FabricFile::open(name)) {
            use.live = file->live_processes();
            if (!file->segment()) {
                use.commands = "(another version of softhca)";
            } else {
                for (const view::ProcessUse& process :
                     view::take_snapshot(*file, *file->segment()).processes) {
                    if (!process.alive)
                        ++use.dead;
                    else
                        use.commands += (use.commands.empty() ? "" : " ") + process.command;
                }
            }
        }
        SOFTHCA_ASSERT(uses.empty() || uses.back().name < use.name, "each fabric is listed once");
        uses.push_back(use);
    }
    return uses;
}

void print_table(const std::vector<FabricUse>& uses) {
    if (uses.empty()) {
        std::puts("no fabric is in use");
        return;
    }
    cli_common::TextTable table({"FABRIC", "LIVE", "DEAD", "COMMANDS"});
    for (const FabricUse& use : uses)
        table.add({use.name, std::to_string(use.live), std::to_string(use.dead),
                   cli_common::printable(use.commands, 40)});
    std::fputs(table.text().c_str(), stdout);
}

void print_json(const std::vector<FabricUse>& uses) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const FabricUse& use : uses)
        json.push_back({{"fabric", use.name}, {"live", use.live}, {"dead", use.dead}});
    std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace

void add_list_command(CLI::App& app, int* status) {
    struct Arguments {
        bool json = false, names = false;
    };
    auto arguments = std::make_shared<Arguments>();
    CLI::App* list = app.add_subcommand("list", "list this user's fabrics");
    CLI::Option* json = list->add_flag("--json", arguments->json, "as JSON");
    list->add_flag("--names", arguments->names, "only the names, a line each")->excludes(json);
    list->callback([arguments, status] {
        if (arguments->names)
            for (const std::string& name : view::fabric_names())
                std::puts(name.c_str());
        else if (arguments->json)
            print_json(fabrics());
        else
            print_table(fabrics());
        *status = kSuccess;
    });
}

}  // namespace softhca::cli
