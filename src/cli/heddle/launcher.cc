// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/launcher.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "cli/program.h"

extern char** environ;

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// What ldd prints of a program; empty: it says nothing (a script, or ldd is not there).
std::string dependencies_of(const std::string& program) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::string name = "ldd", argument = program;
    char* const words[] = {name.data(), argument.data(), nullptr};
    pid_t child = -1;
    const int failed = ::posix_spawnp(&child, "ldd", &actions, nullptr, words, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t got = 0; failed == 0;) {
        got = ::read(ends[0], part.data(), part.size());
        if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
        if (got == 0 || (got < 0 && errno != EINTR)) break;
    }
    ::close(ends[0]);
    while (failed == 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return text;
}

// Where "libmpi.so.12 => /somewhere/lib/libmpi.so.12 (0x...)" points to; empty: nowhere.
fs::path mpi_library_of(const std::string& program) {
    std::istringstream lines(dependencies_of(program));
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name, arrow, path;
        words >> name >> arrow >> path;
        if (arrow == "=>" && path.starts_with('/') &&
            (name.starts_with("libmpi.so") || name.starts_with("libmpich.so")))
            return path;
    }
    return {};
}

// Distributions have several side by side, told apart by the end of the name.
std::vector<std::string> names_for(const fs::path& library) {
    const std::string name = library.filename();
    if (name.starts_with("libmpich.so")) return {"mpiexec.mpich", "mpiexec"};
    if (name.starts_with("libmpi.so.40")) return {"mpiexec.openmpi", "mpiexec"};
    return {"mpiexec"};
}

// Beside the folder of the library, or some folders above it.
fs::path mpiexec_above(const fs::path& library) {
    constexpr int kLevels = 5;
    fs::path folder = library.parent_path();
    for (int level = 0; level < kLevels && folder.has_relative_path();
         ++level, folder = folder.parent_path())
        for (const std::string& name : names_for(library))
            if (const fs::path found = folder / "bin" / name; is_executable(found)) return found;
    return {};
}

// Also where the library really is: distributions have /lib as a link to /usr/lib.
fs::path mpiexec_of(const fs::path& library) {
    if (const fs::path found = mpiexec_above(library); !found.empty()) return found;
    std::error_code error;
    const fs::path real = fs::canonical(library, error);
    return error ? fs::path() : mpiexec_above(real);
}

fs::path in_path(const std::string& name) {
    try {
        return softhca::cli::find_program(name);
    } catch (const softhca::cli::ProgramError&) {
        return {};
    }
}

}  // namespace

Launcher find_launcher(unsigned ranks, const std::string& program, const fs::path& venvs) {
    const std::string count = std::to_string(ranks);
    const fs::path library = mpi_library_of(program);
    const bool is_openmpi = library.filename().string().starts_with("libmpi.so.40");
    if (!library.empty())
        if (const fs::path found = mpiexec_of(library); !found.empty())
            return {{found, "-n", count}, "of the MPI it is linked with", is_openmpi};
    if (const fs::path found = in_path("mpiexec"); !found.empty())
        return {{found, "-n", count}, "found in PATH", is_openmpi};
    if (const fs::path found = in_path("srun"); !found.empty() && std::getenv("SLURM_JOB_ID"))
        return {{found, "-n", count}, "as this is a job of Slurm's", false};
    for (const char* each : {"mpich", "openmpi", "impi"})
        if (const fs::path found = venvs / each / "bin" / "mpiexec"; is_executable(found))
            return {{found, "-n", count},
                    "which `make demo` has installed",
                    std::string_view(each) == "openmpi"};
    throw softhca::cli::ProgramError(softhca::cli::kNotFound,
                                     "-n " + count + ": no mpiexec: " +
                                         (library.empty() ? program + " is linked with no MPI"
                                                          : "none beside " + library.string()) +
                                         ", none is in PATH, none in " + venvs.string() +
                                         "; name one: heddle run -- /path/of/mpiexec -n " + count +
                                         " " + program);
}

}  // namespace heddle::cli
