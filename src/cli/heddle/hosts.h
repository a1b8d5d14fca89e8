// SPDX-License-Identifier: BSD-2-Clause
// The hosts of a job: named on the command line, in a file, or by a batch system.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

// Where a list of hosts comes from.
enum class HostSource { kOption, kSlurm, kPbs };

struct HostList {
    std::vector<std::string> names;  // each once, in their order
    HostSource source = HostSource::kOption;
    std::string described;  // "-hosts", "hosts.txt", "Slurm", "PBS"
    // More than one, or one that is not this machine.
    bool is_remote() const;
};

// "a,b:4": names with commas between them, each with a number of slots or without. Throws
// cli_common::ProgramError where a name is not one.
std::vector<std::string> split_hosts(const std::string& list);
// A host a line, as mpiexec reads it: "name", "name:4", "name slots=4"; # begins a comment. Throws
// cli_common::ProgramError.
std::vector<std::string> read_hostfile(const std::string& file);
// The hosts of the Slurm or PBS job that this process is in: `scontrol show hostnames` of
// SLURM_JOB_NODELIST, PBS_NODEFILE. nullopt: it is in none. Throws cli_common::ProgramError.
std::optional<HostList> allocated_hosts();
// The option's hosts, else the file's, else those of the allocation, else nullopt.
std::optional<HostList> chosen_hosts(const std::string& list, const std::string& file);

// Whether a name is "localhost" or this machine's, with a domain or without.
bool is_this_host(const std::string& name);

}  // namespace heddle::cli
