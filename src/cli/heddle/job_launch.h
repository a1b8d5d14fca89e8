// SPDX-License-Identifier: BSD-2-Clause
// How mpiexec, mpirun and srun start a job on several hosts: the words that name the hosts, and
// those that carry variables to them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/heddle/hosts.h"
#include "cli/heddle/mpi_switches.h"

namespace heddle::cli {

enum class LauncherKind { kUnknown, kHydra, kOpenMpi, kSrun };

// What kind of launcher a program is, by its name, the files beside it, or what its --version says.
LauncherKind kind_of_launcher(const std::string& program);

// The hosts that a launcher's own words name (-hosts, --host, -f, -hostfile, -machinefile).
// nullopt: none do. Throws cli_common::ProgramError: a file cannot be read.
std::optional<HostList> hosts_of_command(const std::vector<std::string>& command);

// A job that needs other hosts than this one.
struct RemoteJob {
    HostList hosts;  // none: srun will choose them
    LauncherKind kind = LauncherKind::kUnknown;
    bool is_named = false;  // by the options of heddle run: the launcher has to learn the hosts
};

// The hosts by the options `list` and `file`; else by the command's own words; else by the batch
// system. nullopt: the job is on this host, or no launcher is started. Throws
// cli_common::ProgramError.
std::optional<RemoteJob> remote_job(const std::string& list, const std::string& file,
                                    const std::vector<std::string>& command);

// What names the hosts to the launcher. None: it knows them. `ranks` 0: unknown.
std::vector<std::string> host_words(const RemoteJob& job, unsigned ranks);

// What follows the launcher's name, so that each host gets the variables of this process that
// `settings` name, and all of libfabric, heddle, softhca and of the MPIs. Hydra passes the
// environment on by itself, unless I_MPI_HYDRA_ENV or HYDRA_ENV say otherwise: it gets those of
// `settings` alone. Open MPI passes on none but its own (OMPI_*, PRTE_*). srun passes all on,
// unless SLURM_EXPORT_ENV or SBATCH_EXPORT say otherwise.
std::vector<std::string> variable_words(LauncherKind kind, const std::vector<std::string>& command,
                                        const std::vector<Setting>& settings);

}  // namespace heddle::cli
