// SPDX-License-Identifier: BSD-2-Clause
// Starts `heddle doctor` on other hosts, and talks with it in lines of JSON over the pipes of ssh
// or srun.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/heddle/hosts.h"

namespace heddle::cli {

// Each line of an agent begins with this: what a login shell prints does not.
inline constexpr const char* kAgentMark = "heddle-doctor ";

// How a program is started on another host.
struct RemoteShell {
    std::vector<std::string> words;  // "ssh", "-o", ...; the host's name follows
    bool is_slurm = false;           // by srun, which runs the words as they are
};

// The command that the option names; else HEDDLE_SSH, or that of MPICH's or Intel MPI's launcher
// (HYDRA_LAUNCHER_EXEC, HYDRA_BOOTSTRAP_EXEC, I_MPI_HYDRA_BOOTSTRAP_EXEC); else srun for Slurm's
// hosts; else ssh, which must need no password.
RemoteShell remote_shell(const std::string& option, HostSource source, unsigned timeout_s);

// One program on one host. One thread.
class HostAgent {
public:
    using Clock = std::chrono::steady_clock;

    // Starts `words` there; this host needs no remote shell. Their environment has the FI_HEDDLE_
    // variables of this process. Failures show when a line is read.
    HostAgent(const RemoteShell& shell, std::string host, const std::vector<std::string>& words);
    ~HostAgent();  // ends the program
    HostAgent(HostAgent&& other) noexcept;
    HostAgent& operator=(HostAgent&&) = delete;

    const std::string& host() const noexcept { return host_; }
    // Waits for the next line. nullopt: it has ended, or `until` has come; why() says it.
    std::optional<nlohmann::ordered_json> read(Clock::time_point until);
    // Returns false if it has ended.
    bool write(const nlohmann::ordered_json& line);
    // Why there is no answer: its last line on stderr, its exit status, or the time that passed.
    const std::string& why() const noexcept { return why_; }

private:
    void take_errors();
    void end(bool in_time);

    std::string host_, why_;
    std::string lines_, errors_;
    pid_t child_ = -1;
    int input_ = -1, output_ = -1, error_ = -1;  // -1: closed
};

}  // namespace heddle::cli
