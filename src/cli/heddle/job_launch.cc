// SPDX-License-Identifier: BSD-2-Clause
// Tried with MPICH 4.0 and Open MPI 4.1 of Debian 12, and with its Slurm 22.05.
#include "cli/heddle/job_launch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "cli/common/program.h"
#include "cli/heddle/launcher.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// How many of the words are the launcher's: the first that is neither an option nor the value of
// one is the program. A launcher's options have a value or none, so a word behind one that names a
// program is that.
std::size_t own_words(const std::vector<std::string>& command) {
    std::size_t i = 1;
    while (i < command.size() && command[i].starts_with('-')) {
        const std::string& option = command[i++];
        for (const char* pair : {"-genv", "-env", "-mca", "--mca", "-gmca", "--gmca", "--prtemca"})
            if (option == pair) ++i;
        if (i >= command.size() || command[i].starts_with('-') || has(option, "=")) continue;
        try {
            cli_common::find_program(command[i]);
            break;
        } catch (const cli_common::ProgramError&) {
            ++i;
        }
    }
    return std::min(i, command.size());
}

// The value of an option of the launcher: "-hosts a", "--hosts=a".
std::optional<std::string> value_of(const std::vector<std::string>& command,
                                    std::initializer_list<const char*> names) {
    const std::size_t end = own_words(command);
    for (std::size_t i = 1; i < end; ++i)
        for (const std::string_view name : names) {
            const std::string_view word = command[i];
            if (word == name && i + 1 < end) return command[i + 1];
            if (word.starts_with("--") && word.starts_with(name) && word.size() > name.size() &&
                word[name.size()] == '=')
                return std::string(word.substr(name.size() + 1));
        }
    return std::nullopt;
}

// Prefixes of variables that libfabric, the provider, softhca and the MPIs read.
bool is_passed_on(std::string_view name) {
    for (const std::string_view prefix : {"FI_", "SOFTHCA_", "MPIR_CVAR_", "I_MPI_"})
        if (name.starts_with(prefix)) return true;
    return name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH";
}

}  // namespace

LauncherKind kind_of_launcher(const std::string& program) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path real = fs::canonical(program, error);
    if (error) real = program;
    for (const fs::path& each : {fs::path(program), real}) {
        const std::string name = each.filename();
        if (name == "srun") return LauncherKind::kSrun;
        if (has(name, "hydra") || has(name, ".mpich") || has(name, "mpiexec.gforker"))
            return LauncherKind::kHydra;
        if (name == "orterun" || name == "prterun" || has(name, ".openmpi"))
            return LauncherKind::kOpenMpi;
    }
    const std::string name = fs::path(program).filename();
    if (name != "mpiexec" && name != "mpirun") return LauncherKind::kUnknown;
    const std::string version = output_of({program, "--version"});
    if (has(version, "Open MPI") || has(version, "OpenRTE") || has(version, "PRTE"))
        return LauncherKind::kOpenMpi;
    if (has(version, "HYDRA") || has(version, "Intel(R) MPI")) return LauncherKind::kHydra;
    return LauncherKind::kUnknown;
}

std::optional<HostList> hosts_of_command(const std::vector<std::string>& command) {
    if (const auto list = value_of(command, {"-hosts", "--hosts", "-host", "--host", "-H"}))
        return HostList{split_hosts(*list), HostSource::kOption, "-hosts"};
    if (const auto file = value_of(command, {"-f", "-hostfile", "--hostfile", "-machinefile",
                                             "--machinefile", "--default-hostfile"}))
        return HostList{read_hostfile(*file), HostSource::kOption, *file};
    return std::nullopt;
}

std::optional<RemoteJob> remote_job(const std::string& list, const std::string& file,
                                    const std::vector<std::string>& command) {
    HEDDLE_ASSERT(!command.empty());
    RemoteJob job;
    job.is_named = !list.empty() || !file.empty();
    const std::string name = std::filesystem::path(command.front()).filename();
    const bool may_be_launcher =
        name.starts_with("mpi") || name == "srun" || name == "orterun" || name == "prterun";
    std::optional<HostList> hosts;
    if (job.is_named)
        hosts = chosen_hosts(list, file);
    else if (may_be_launcher && name != "srun")  // its -w may have ranges
        hosts = hosts_of_command(command);
    if (!hosts && may_be_launcher) hosts = allocated_hosts();
    // Outside of a job srun makes one, on hosts that nobody knows yet.
    if (!hosts && name == "srun") hosts = HostList{{}, HostSource::kSlurm, "Slurm"};
    if (!hosts || (!hosts->names.empty() && !hosts->is_remote())) return std::nullopt;
    job.hosts = *hosts;
    job.kind = kind_of_launcher(command.front());
    if (job.is_named && job.kind == LauncherKind::kUnknown)
        throw cli_common::ProgramError(
            cli_common::kRunFailed,
            command.front() +
                " is not known as a launcher of MPICH, Intel MPI, Open MPI or Slurm, "
                "so it cannot be given hosts: say -n N and an MPI program, or name "
                "the hosts in the launcher's own words");
    if (job.kind == LauncherKind::kUnknown) return std::nullopt;
    return job;
}

std::vector<std::string> host_words(const RemoteJob& job, unsigned ranks) {
    const std::vector<std::string>& names = job.hosts.names;
    if (!job.is_named && job.hosts.source != HostSource::kPbs) return {};
    HEDDLE_ASSERT(!names.empty());
    if (!job.is_named) {  // its file has a line for each slot
        const char* const file = std::getenv("PBS_NODEFILE");
        HEDDLE_ASSERT(file != nullptr, "the hosts were read from it");
        if (job.kind == LauncherKind::kHydra) return {"-f", file};
        if (job.kind == LauncherKind::kOpenMpi) return {"--hostfile", file};
        return {};
    }
    std::string list, slots;
    // Open MPI takes a host without a number for one slot; "*" stands for its processors.
    const std::string each =
        ranks == 0 ? "*" : std::to_string((ranks + names.size() - 1) / names.size());
    for (const std::string& name : names) {
        const char* const comma = list.empty() ? "" : ",";
        list.append(comma).append(name);
        slots.append(comma).append(name).append(":").append(each);
    }
    switch (job.kind) {
        case LauncherKind::kHydra:
            return {"-hosts", list};
        case LauncherKind::kOpenMpi:
            return {"--host", slots};
        case LauncherKind::kSrun:
            return {"--nodelist=" + list, "--nodes=" + std::to_string(names.size())};
        case LauncherKind::kUnknown:
            break;
    }
    return {};
}

std::vector<std::string> variable_words(LauncherKind kind, const std::vector<std::string>& command,
                                        const std::vector<Setting>& settings) {
    std::vector<std::string> words;
    if (kind == LauncherKind::kSrun) {
        if (!value_of(command, {"--export"})) words.emplace_back("--export=ALL");
        return words;
    }
    if (kind == LauncherKind::kHydra) {
        for (const Setting& each : settings)
            if (const char* value = std::getenv(each.variable.c_str()))
                words.insert(words.end(), {"-genv", each.variable, value});
        return words;
    }
    if (kind != LauncherKind::kOpenMpi) return words;
    std::set<std::string> names;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string_view entry = *each;
        const std::string_view name = entry.substr(0, entry.find('='));
        if (is_passed_on(name)) names.emplace(name);
    }
    for (const std::string& name : names)
        words.insert(words.end(), {"-x", name});
    return words;
}

}  // namespace heddle::cli
