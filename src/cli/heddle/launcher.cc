// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/launcher.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/common/program.h"
#include "cli/heddle/python_path.h"
#include "cli/heddle/trusted_file.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// Where "libmpi.so.12 => /somewhere/lib/libmpi.so.12 (0x...)" points to; empty: nowhere. ldd says
// nothing of a script, and nothing where it is not installed.
fs::path mpi_library_of(const fs::path& program) {
    // A path with a slash: what begins with a dash would be an option of ldd's.
    std::istringstream lines(output_of({"ldd", fs::absolute(program).string()}));
    for (std::string line; std::getline(lines, line);) {
        const std::size_t name = line.find_first_not_of(" \t"), arrow = line.find(" => /"),
                          address = line.rfind(" (0x");
        if (name == std::string::npos || arrow == std::string::npos ||
            address == std::string::npos || address < arrow)
            continue;
        const std::string_view library = std::string_view(line).substr(name);
        if (library.starts_with("libmpi.so") || library.starts_with("libmpich.so"))
            return line.substr(arrow + 4, address - arrow - 4);
    }
    return {};
}

bool is_openmpi(const fs::path& library) {
    return library.filename().string().starts_with("libmpi.so.40");
}

// Distributions have several side by side, told apart by the end of the name.
std::vector<std::string> names_for(const fs::path& library) {
    if (library.filename().string().starts_with("libmpich.so")) return {"mpiexec.mpich", "mpiexec"};
    if (is_openmpi(library)) return {"mpiexec.openmpi", "mpiexec"};
    return {"mpiexec"};
}

// Looks for an mpiexec in folders, and notes what it may not start there.
class Search {
public:
    fs::path in_folder(const fs::path& folder, const std::vector<std::string>& names) {
        HEDDLE_ASSERT(folder.is_absolute(), "the working directory is not searched");
        // Where /bin is a link to /usr/bin: Open MPI takes what its path begins with for its prefix
        // on other hosts, and refuses "/".
        const bool is_link = folder.lexically_normal() == "/bin" && fs::is_symlink("/bin");
        for (const std::string& name : names) {
            const fs::path found =
                (is_link ? "/usr/bin" / fs::path(name) : folder / name).lexically_normal();
            if (!is_executable(found)) continue;
            const std::string why = why_not_trusted(found);
            if (why.empty()) return found;
            refused_.insert(found.string() + ": " + why);
        }
        return {};
    }

    // lib/../bin (most installations, PyPI's wheels, Fedora's lib64/openmpi), lib/KIND/../../bin
    // (Debian's multiarch folders, Intel MPI's lib/release); and /usr/bin for all below /usr
    // (Debian's lib/x86_64-linux-gnu/openmpi/lib). Not higher: of a library in /home/user/build/lib
    // that would be /home/bin.
    fs::path of_library(const fs::path& library) {
        std::error_code error;
        const fs::path real = fs::canonical(library, error);
        const std::vector<std::string> names = names_for(library);
        for (const fs::path& each : {library, error ? library : real}) {
            const fs::path folder = each.parent_path();
            for (const fs::path& bin :
                 {folder.parent_path() / "bin", folder.parent_path().parent_path() / "bin"})
                if (fs::path found = in_folder(bin, names); !found.empty()) return found;
            if (each.string().starts_with("/usr/"))
                if (fs::path found = in_folder("/usr/bin", names); !found.empty()) return found;
        }
        return {};
    }

    std::vector<std::string> refused() const { return {refused_.begin(), refused_.end()}; }

private:
    std::set<std::string> refused_;
};

fs::path in_path(const std::string& name) {
    try {
        return cli_common::find_program(name);
    } catch (const cli_common::ProgramError&) {
        return {};
    }
}

// The Python that runs `program`: itself, also as a script that chooses one (pyenv's), or the one
// that a script begins with. Empty: none does.
fs::path python_of(const fs::path& program) {
    const auto is_python = [](const fs::path& path) {
        return path.filename().string().starts_with("python");
    };
    fs::path interpreter = program;
    std::string line;
    if (std::ifstream file(program, std::ios::binary);
        !is_python(program) && file.get() == '#' && file.get() == '!' && std::getline(file, line)) {
        std::istringstream words(line.substr(0, 4096));
        std::string first, second;
        words >> first >> second;
        interpreter = fs::path(first).filename() == "env" ? in_path(second) : fs::path(first);
    }
    if (!is_python(interpreter)) return {};
    return is_executable(interpreter) ? interpreter : fs::path();
}

// The shared objects of the mpi4py that this Python would import. A wheel of PyPI's has one for
// each MPI, and chooses when it is imported.
std::vector<fs::path> mpi4py_modules(const fs::path& python) {
    const std::string where =
        std::string(kWithoutWorkingDirectory) +
        "import importlib.util; spec = importlib.util.find_spec('mpi4py')\n"
        "print(*(spec.submodule_search_locations if spec else []), sep='\\n')\n";
    const std::vector<std::string> words{"env", "PYTHONPATH=" + absolute_python_path(),
                                         fs::absolute(python).string(), "-c", where};
    std::vector<fs::path> modules;
    std::istringstream folders(output_of(words));
    for (std::string folder; std::getline(folders, folder);) {
        std::error_code error;
        for (const auto& entry : fs::directory_iterator(folder, error)) {
            const std::string name = entry.path().filename();
            if (name.starts_with("MPI.") && name.ends_with(".so")) modules.push_back(entry.path());
        }
    }
    return modules;
}

// The mpiexec of a virtual environment (venv, conda) is for the programs of its Python.
bool is_of_environment(const fs::path& python) {
    const fs::path prefix = fs::absolute(python).parent_path().parent_path();
    std::error_code error;
    return fs::exists(prefix / "pyvenv.cfg", error) || fs::exists(prefix / "conda-meta", error);
}

bool has_openmpi(const fs::path& mpiexec) {
    std::error_code error;
    return fs::exists(mpiexec.parent_path().parent_path() / "lib" / "libmpi.so.40", error);
}

Launcher of_python(const fs::path& python, const std::string& count, Search& search) {
    const std::vector<fs::path> modules = mpi4py_modules(python);
    const auto by_modules = [&]() -> Launcher {
        for (const fs::path& module : modules)
            if (const fs::path library = mpi_library_of(module); !library.empty())
                if (const fs::path found = search.of_library(library); !found.empty())
                    return {{found, "-n", count},
                            "of the MPI that mpi4py is linked with",
                            is_openmpi(library),
                            {}};
        return {};
    };
    if (modules.size() == 1)
        if (Launcher launcher = by_modules(); !launcher.words.empty()) return launcher;
    if (is_of_environment(python)) {
        const fs::path folder = fs::absolute(python).parent_path();
        if (const fs::path found = search.in_folder(folder, {"mpiexec"}); !found.empty())
            return {{found, "-n", count}, "beside the interpreter", has_openmpi(found), {}};
    }
    return modules.size() > 1 ? by_modules() : Launcher{};
}

}  // namespace

std::string output_of(std::vector<std::string> words) {
    HEDDLE_ASSERT(!words.empty() && !words.front().empty(), "there is a program to start");
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = -1;
    const int failed =
        ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    HEDDLE_ASSERT(failed != 0 || child > 0, "a program that was started is waited for");
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

fs::path own_path() {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    if (error)
        throw cli_common::ProgramError(cli_common::kRunFailed,
                                       "cannot read /proc/self/exe: " + error.message());
    return self;
}

fs::path own_folder() { return own_path().parent_path(); }

std::string provider_folder() {
    std::string tried;
    for (const char* relative : {"../lib", HEDDLE_PROVIDER_FROM_BIN}) {
        const fs::path folder = (own_folder() / relative).lexically_normal();
        if (::access((folder / "libheddle-fi.so").c_str(), R_OK) == 0) return folder.string();
        tried += (tried.empty() ? "" : " or ") + folder.string();
    }
    throw cli_common::ProgramError(cli_common::kRunFailed,
                                   "libheddle-fi.so is not there: looked in " + tried);
}

fs::path demo_venvs() { return (own_folder() / "../venvs").lexically_normal(); }

Launcher find_launcher(unsigned ranks, const std::string& program, const fs::path& venvs) {
    HEDDLE_ASSERT(ranks != 0 && !program.empty(), "-n starts a program");
    const std::string count = std::to_string(ranks);
    const fs::path library = mpi_library_of(program);
    const bool with_openmpi = is_openmpi(library);
    Search search;
    const auto chosen = [&](Launcher launcher) {
        HEDDLE_ASSERT(!launcher.words.empty() && !launcher.why.empty() && launcher.refused.empty(),
                      "the user reads which launcher it is, and why");
        launcher.refused = search.refused();
        return launcher;
    };
    if (!library.empty())
        if (const fs::path found = search.of_library(library); !found.empty())
            return chosen({{found, "-n", count}, "of the MPI it is linked with", with_openmpi, {}});
    if (const fs::path python = python_of(program); library.empty() && !python.empty())
        if (Launcher launcher = of_python(python, count, search); !launcher.words.empty())
            return chosen(std::move(launcher));
    if (const fs::path found = in_path("mpiexec"); !found.empty())
        return chosen({{found, "-n", count}, "found in PATH", with_openmpi, {}});
    if (const fs::path found = in_path("srun"); !found.empty() && std::getenv("SLURM_JOB_ID"))
        return chosen({{found, "-n", count}, "as this is a job of Slurm's", false, {}});
    for (const char* each : {"mpich", "openmpi", "impi"})
        if (const fs::path found = search.in_folder(venvs / each / "bin", {"mpiexec"});
            !found.empty())
            return chosen({{found, "-n", count},
                           "which `make demo` has installed",
                           std::string_view(each) == "openmpi",
                           {}});
    std::string text =
        "-n " + count + ": no mpiexec: " +
        (library.empty() ? program + " is linked with no MPI" : "none beside " + library.string()) +
        ", none is in PATH, none in " + venvs.string();
    for (const std::string& each : search.refused())
        text += "; not started: " + each;
    throw cli_common::ProgramError(
        cli_common::kNotFound,
        text + "; name one: heddle run -- /path/of/mpiexec -n " + count + " " + program);
}

}  // namespace heddle::cli
