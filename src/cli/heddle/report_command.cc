// SPDX-License-Identifier: BSD-2-Clause
// `heddle reproduce` and `heddle report`: a Python package (report/heddle_report), which is given
// this command's place and declares its options itself.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/heddle/commands.h"
#include "cli/heddle/python_path.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

// `python3 -m` would look for modules in the working directory first.
const std::string kStart =
    std::string(kWithoutWorkingDirectory) +
    "sys.path.insert(0, sys.argv.pop(1))\n"
    "import runpy; runpy.run_module('heddle_report', run_name='__main__', alter_sys=True)\n";

int start(const std::string& command, const std::vector<std::string>& arguments) {
    HEDDLE_ASSERT(command == "reproduce" || command == "report", "the package knows these two");
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path package =
        (self.parent_path() / HEDDLE_REPORT_FROM_BIN).lexically_normal();
    if (!std::filesystem::exists(package / "heddle_report" / "__main__.py")) {
        std::fprintf(stderr, "heddle %s: its Python package is not in %s\n", command.c_str(),
                     package.c_str());
        return kFailed;
    }
    ::setenv("PYTHONPATH", absolute_python_path().c_str(), 1);  // empty: as if unset
    const std::filesystem::path programs =
        (self.parent_path() / HEDDLE_LIBEXEC_FROM_BIN).lexically_normal();
    std::vector<std::string> words{"python3", "-c",        kStart,   package, "--heddle",
                                   self,      "--libexec", programs, command};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    std::fprintf(stderr, "heddle %s: python3: %s\n", command.c_str(), std::strerror(errno));
    return kFailed;
}

}  // namespace

void add_report_commands(CLI::App& app, int* status) {
    for (const auto& [name, what] :
         {std::pair{"reproduce", "Run the papers' experiments, and write a page of what came out"},
          std::pair{"report", "A page of one such run, or of several beside each other"}}) {
        CLI::App* const command = app.add_subcommand(name, what);
        command->set_help_flag();  // the package's
        command->prefix_command();
        command->callback(
            [command, status] { *status = start(command->get_name(), command->remaining()); });
    }
}

}  // namespace heddle::cli
