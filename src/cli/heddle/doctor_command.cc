// SPDX-License-Identifier: BSD-2-Clause
// heddle doctor: what would stop a job on this host, each finding with what to do.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/common/program.h"
#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/doctor.h"
#include "cli/heddle/doctor_hosts.h"

namespace heddle::cli {
namespace {

struct DoctorOptions {
    DoctorRequest request;
    std::string hosts, hostfile, ssh;
    unsigned timeout_s = HostsRequest().timeout_s;
    bool json = false, agent = false;
};

void print_report(const nlohmann::ordered_json& report) {
    for (const auto& check : report["checks"]) {
        const std::string verdict = check["verdict"], name = check["name"], seen = check["seen"],
                          remedy = check["remedy"];
        std::printf("%-8s %-14s %s\n", verdict.c_str(), name.c_str(), seen.c_str());
        if (!remedy.empty()) std::fputs(cli_common::wrapped("-> " + remedy, 24).c_str(), stdout);
    }
    const unsigned problems = report["problems"];
    if (problems == 0)
        std::printf("\nNothing here stops a job.\n");
    else
        std::printf("\n%u problem%s would stop a job here.\n", problems, problems == 1 ? "" : "s");
}

int examine_here(const DoctorOptions& options) {
    Checkup checkup(options.request);
    const auto report = checkup.report();
    if (options.agent) {
        print_for_launcher(report);
        return serve_pairs(checkup.probe());
    }
    if (options.json)
        std::printf("%s\n", report.dump().c_str());
    else
        print_report(report);
    return checkup.problems() == 0 ? 0 : kFailed;
}

int examine_hosts(const DoctorOptions& options, const HostList& hosts) {
    HostsRequest request{options.request, hosts, options.ssh, options.timeout_s};
    HostsCheckup checkup(request);
    if (!options.json) {
        std::fputs(checkup.host_lines().c_str(), stdout);
        std::fflush(stdout);
    }
    checkup.try_pairs();
    if (options.json)
        std::printf("%s\n", checkup.to_json().dump().c_str());
    else
        std::fputs(("\n" + checkup.other_lines()).c_str(), stdout);
    return checkup.problems() == 0 ? 0 : kFailed;
}

int doctor(const DoctorOptions& options) {
    if (options.agent) return examine_here(options);
    const auto hosts = chosen_hosts(options.hosts, options.hostfile);
    return hosts ? examine_hosts(options, *hosts) : examine_here(options);
}

}  // namespace

void add_doctor_command(CLI::App& app, int* status) {
    CLI::App* command =
        app.add_subcommand("doctor", "What would stop a job here, and what to do about it");
    auto options = std::make_shared<DoctorOptions>();
    DoctorRequest& request = options->request;
    command->add_option("--device", request.device,
                        "the device, with a port or without (default: FI_HEDDLE_DEVICE, else the "
                        "first that is active)");
    command
        ->add_option("--ranks,--np,-n", request.ranks,
                     "ranks of the job (default: as many as there are processors)")
        ->default_str("")
        ->check(CLI::Range(1, 10'000'000));
    command->add_option("--threads", request.threads, "threads of a rank that call MPI at once")
        ->check(CLI::Range(1, 1024));
    command->add_option("--libfabric", request.libfabric,
                        "the libfabric to try, of an MPI for instance");
    command->add_flag("--json", options->json, "as JSON");
    auto* named = command
                      ->add_option("--hosts,-H", options->hosts,
                                   "examine these, with commas between them, and each pair; also "
                                   "-hosts (default: those of the Slurm or PBS job)")
                      ->type_name("LIST");
    command
        ->add_option("--hostfile,-f", options->hostfile,
                     "the same from a file, a host a line; also -hostfile")
        ->type_name("FILE")
        ->excludes(named);
    command
        ->add_option("--ssh", options->ssh,
                     "the command that starts a program on a host (default: HEDDLE_SSH, "
                     "HYDRA_LAUNCHER_EXEC, srun in a Slurm job, else ssh)")
        ->type_name("COMMAND")
        ->default_str("");
    command
        ->add_option("--timeout", options->timeout_s,
                     "seconds for the answer of a host, and for the messages of a pair")
        ->check(CLI::Range(1, 3600));
    // What the process on a launching host says to the one on another.
    command->add_flag("--agent", options->agent)->group("");
    command->add_option("--of-hosts", request.hosts)->group("")->check(CLI::Range(1, 1'000'000));
    command->callback([options, status] {
        try {
            *status = doctor(*options);
        } catch (const cli_common::ProgramError& error) {
            std::fprintf(stderr, "heddle doctor: %s\n", error.what());
            *status = kFailed;
        }
    });
}

}  // namespace heddle::cli
