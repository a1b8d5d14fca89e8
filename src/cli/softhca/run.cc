// SPDX-License-Identifier: BSD-2-Clause
// `softhca run`. LD_PRELOAD is described in ld.so(8).
#include "cli/softhca/run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>

#include "cli/common/program.h"
#include "cli/softhca/commands.h"
#include "cli/softhca/fabric_removal.h"
#include "softhca/base/assert.h"
#include "softhca/record/record_path.h"

namespace softhca::cli {
namespace {

using cli_common::check_preloadable;
using cli_common::execute;
using cli_common::find_program;
using cli_common::kCannotExecute;
using cli_common::kNotFound;
using cli_common::kRunFailed;
using cli_common::ProgramError;

constexpr const char* kLibraryName = "libsofthca.so";

void set_variable(const std::string& name, const std::string& value) {
    SOFTHCA_ASSERT(!name.empty() && name.find('=') == std::string::npos, "it is a variable's name");
    if (::setenv(name.c_str(), value.c_str(), 1) != 0)
        throw ProgramError(kRunFailed, "cannot set " + name + ": " + std::strerror(errno));
}

// A file that cannot be written would be noticed when it is missing. Nothing is created here: a
// program that logs or records nothing leaves no file.
void check_writable(const std::string& what, const std::string& file) {
    const auto refuse = [&](const std::string& why) {
        throw CommandError(what + " " + file + " cannot be written: " + why, kUsage);
    };
    struct stat status {};
    if (::lstat(file.c_str(), &status) == 0) {
        if (S_ISLNK(status.st_mode))
            refuse("it is a symbolic link, which is not followed; name what it leads to");
        if (S_ISDIR(status.st_mode)) refuse(std::strerror(EISDIR));
        if (::access(file.c_str(), W_OK) != 0) refuse(std::strerror(errno));
        return;
    }
    if (errno != ENOENT) refuse(std::strerror(errno));
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    const std::string in = folder.empty() ? "." : folder.string();
    if (::access(in.c_str(), W_OK | X_OK) != 0) refuse(in + ": " + std::strerror(errno));
}

void check_file(const OptionDeclaration& declaration, const std::string& value) {
    const std::string_view variable = declaration.variable;
    if (value.empty()) return;
    if (variable == "SOFTHCA_LOG_FILE") check_writable("the log file", value);
    if (variable == "SOFTHCA_RECORD") {
        // The program keeps the pid of this command.
        char path[PATH_MAX];
        if (!record::expand_path(value, "", ::getpid(), path, sizeof path))
            throw CommandError("the run record " + value +
                                   " cannot be written: its path, with the "
                                   "pid, is longer than " +
                                   std::to_string(sizeof path - 1) + " bytes",
                               kUsage);
        check_writable("the run record", path);
    }
}

}  // namespace

std::string preload_list(const std::string& before, const std::string& library) {
    SOFTHCA_ASSERT(!library.empty() && library.find_first_of(": ") == std::string::npos,
                   "find_library() refuses a path that the loader would take for several");
    const std::string list = cli_common::preloaded_without(before, {kLibraryName});
    return list + (list.empty() ? "" : ":") + library;
}

std::string find_library() {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
        throw ProgramError(kRunFailed, "cannot read /proc/self/exe (" + error.message() +
                                           "), so cannot find " + kLibraryName);
    std::string tried;
    for (const char* relative : {"../lib/libsofthca.so", SOFTHCA_LIBRARY_FROM_BIN}) {
        std::string path = (self.parent_path() / relative).lexically_normal().string();
        if (::access(path.c_str(), R_OK) == 0) {
            if (path.find_first_of(": $") != std::string::npos)
                throw ProgramError(kRunFailed, "the dynamic loader cannot preload " + path +
                                                   ": a path in LD_PRELOAD may have no space, "
                                                   "colon or dollar sign. Put softhca elsewhere.");
            return path;
        }
        if (tried.find(path) == std::string::npos)
            tried += (tried.empty() ? "" : " or ") + path + " (" + std::strerror(errno) + ")";
    }
    throw ProgramError(kRunFailed,
                       std::string(kLibraryName) + " is not there: looked for " + tried);
}

int run(const Settings& settings, const std::vector<std::string>& command) {
    SOFTHCA_ASSERT(!command.empty(), "the caller refuses to run nothing");
    try {
        const std::string program = find_program(command.front());
        check_preloadable(program);
        const char* before = std::getenv("LD_PRELOAD");
        set_variable("LD_PRELOAD", preload_list(before ? before : "", find_library()));
        for (const auto& [name, value] : settings)
            set_variable(name, value);
        remove_dead_fabrics();

        std::vector<char*> arguments;
        arguments.reserve(command.size() + 1);
        for (const std::string& word : command)
            arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        // The path is the one that was checked; the program sees the name it was called by.
        const int reason = execute(program, arguments.data());
        throw ProgramError(reason == ENOENT ? kNotFound : kCannotExecute,
                           program + ": " + std::strerror(reason));
    } catch (const ProgramError& error) {
        std::fprintf(stderr, "softhca run: %s\n", error.what());
        return error.status();
    }
}

void add_run_command(CLI::App& app, const std::vector<std::string>& command, int* status) {
    CLI::App* run_app =
        app.add_subcommand("run", "start COMMAND, with whatever it starts, on the software HCA");
    struct Flag {
        const OptionDeclaration* declaration;
        std::string text;
        const CLI::Option* option;
    };
    auto flags = std::make_shared<std::deque<Flag>>();  // add_option keeps the address of `text`
    for (const OptionDeclaration& declaration : option_declarations()) {
        Flag& flag = flags->emplace_back(&declaration, "", nullptr);
        flag.option = add_declared_option(*run_app, declaration, &flag.text);
        SOFTHCA_ASSERT(flag.option != nullptr, "CLI11 throws where it cannot add an option");
    }
    run_app->callback([flags, &command, status] {
        Settings settings;
        for (const Flag& flag : *flags) {
            const std::string value = option_value(*flag.declaration, *flag.option);
            check_file(*flag.declaration, value);
            if (flag.option->count() > 0) settings.emplace_back(flag.declaration->variable, value);
        }
        if (command.empty()) throw CommandError("no command to run", kUsage);
        *status = run(settings, command);
    });
}

}  // namespace softhca::cli
