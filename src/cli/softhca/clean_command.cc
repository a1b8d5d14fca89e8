// SPDX-License-Identifier: BSD-2-Clause
// `softhca clean`: removes what killed processes have left. A process that joins a fabric does so
// by itself; the command is for fabrics that no process joins any more.
#include <algorithm>
#include <cstdio>

#include "cli/softhca/commands.h"
#include "cli/softhca/fabric_removal.h"
#include "softhca/base/assert.h"
#include "softhca/view/fabric_file.h"
#include "softhca/view/snapshot.h"

namespace softhca::cli {
namespace {

struct CleanArguments {
    std::string fabric;
    bool all = false, dry_run = false, force = false;
};

std::string processes(std::uint64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? " process" : " processes");
}

bool exists(const std::string& name) {
    const std::vector<std::string> names = view::fabric_names();
    return std::find(names.begin(), names.end(), name) != names.end();
}

// False if live processes were in the way.
bool clean(const std::string& name, const CleanArguments& arguments) {
    unsigned live = 0;
    std::uint64_t dead = 0;
    if (const std::unique_ptr<view::FabricFile> file = view::FabricFile::open(name)) {
        live = file->live_processes();
        if (file->segment())
            for (const view::ProcessUse& process :
                 view::take_snapshot(*file, *file->segment()).processes)
                dead += process.alive ? 0 : 1;
    }
    if (live == 0 || arguments.force) {
        if (!arguments.dry_run && !remove_fabric(name, arguments.force)) {
            SOFTHCA_ASSERT(!arguments.force, "only live processes are in the way");
            return clean(name, arguments);
        }
        std::printf("%s fabric %s%s\n", arguments.dry_run ? "would remove" : "removed",
                    name.c_str(),
                    live == 0 ? "" : (", which " + processes(live, "live") + " use").c_str());
        return true;
    }
    if (dead > 0) {
        if (!arguments.dry_run) reclaim_dead(name);
        std::printf("%s what %s left in fabric %s\n",
                    arguments.dry_run ? "would remove" : "removed", processes(dead, "dead").c_str(),
                    name.c_str());
    }
    std::fprintf(stderr, "softhca clean: fabric %s stays: %s use%s it (softhca stat --fabric %s)\n",
                 name.c_str(), processes(live, "live").c_str(), live == 1 ? "s" : "", name.c_str());
    return false;
}

}  // namespace

void add_clean_command(CLI::App& app, int* status) {
    auto arguments = std::make_shared<CleanArguments>();
    CLI::App* command = app.add_subcommand("clean", "remove what killed processes have left");
    CLI::Option* fabric = add_fabric_option(*command, &arguments->fabric);
    command->add_flag("--all", arguments->all, "every fabric of this user that is not in use")
        ->excludes(fabric);
    command->add_flag("-n,--dry-run", arguments->dry_run, "only say what would be removed");
    command->add_flag(
        "--force", arguments->force,
        "remove a fabric even if live processes use it; they keep what they have, but "
        "cannot open the device again");
    command->callback([arguments, fabric, status] {
        if (arguments->all) {
            if (view::fabric_names().empty()) std::puts("nothing to clean: there is no fabric");
            for (const std::string& name : view::fabric_names())
                clean(name, *arguments);
            *status = kSuccess;
        } else {
            const std::string name = fabric_name(*fabric);
            *status = kSuccess;
            if (!exists(name))
                std::printf("nothing to clean: there is no fabric %s\n", name.c_str());
            else if (!clean(name, *arguments))
                *status = kFailed;
        }
    });
}

}  // namespace softhca::cli
