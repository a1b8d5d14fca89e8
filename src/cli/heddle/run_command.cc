// SPDX-License-Identifier: BSD-2-Clause
// heddle run: becomes the given command (mpiexec, say), with the environment in which any of the
// three MPI libraries runs over heddle; on the software HCA if there is no RDMA device.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/program.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/counts_file.h"
#include "cli/heddle/doctor_hosts.h"
#include "cli/heddle/job_launch.h"
#include "cli/heddle/launcher.h"
#include "cli/heddle/mpi_switches.h"
#include "cli/heddle/reuse_report.h"
#include "cli/heddle/stats_report.h"
#include "cli/heddle/tuple_report.h"
#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "heddle/error.h"
#include "provider/options.h"

namespace heddle::cli {
namespace {

using cli_common::ProgramError;

struct RunRequest {
    std::string endpoints, post, rndv, stats_file, record;
    std::string softhca = "auto", mpi = "auto", within_node = "auto", yield = "auto";
    std::string hosts, hostfile, ssh;
    unsigned threads = 1, ranks = 0;  // ranks 0: the command has an mpiexec of its own
    bool check = true;                // the hosts, before the start
    bool stats = false, reuse_report = false, explain = false, verbose = false;
};

std::string softhca_command() {
    const auto path = own_folder() / "softhca";
    if (::access(path.c_str(), X_OK) != 0)
        throw ProgramError(cli_common::kRunFailed, path.string() + ": " + std::strerror(errno) +
                                                       "; without a device that is needed");
    return path.string();
}

// Whether processes have an RDMA device here, and whether it is softhca's already.
struct Machine {
    bool device = false, software = false;
};

Machine look_here(bool verbose) {
    Machine machine;
    try {
        for (const DeviceInfo& each : devices()) {
            machine.device = machine.device || each.port_active;
            machine.software = machine.software || each.software;
        }
    } catch (const VerbsError& error) {  // a kernel without RDMA, say
        if (verbose) std::fprintf(stderr, "heddle run: %s\n", error.what());
    }
    return machine;
}

// Looks in a child process. Opening a device leaves files and threads behind, which mean nothing to
// the program that this process becomes; and this process would be a member of softhca's fabric
// that never leaves.
Machine look(bool verbose) {
    enum : int { kDevice = 1, kSoftware = 2 };
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0)
        throw ProgramError(cli_common::kRunFailed,
                           std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) {
        const Machine machine = look_here(verbose);
        std::exit((machine.device ? kDevice : 0) | (machine.software ? kSoftware : 0));
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status))
        throw ProgramError(cli_common::kRunFailed,
                           "looking for devices ended by signal " +
                               std::to_string(WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    const int found = WEXITSTATUS(status);
    return {(found & kDevice) != 0, (found & kSoftware) != 0};
}

class Environment {
public:
    explicit Environment(bool verbose) : verbose_(verbose) {}
    void set(const Setting& setting) const {
        HEDDLE_ASSERT(!setting.variable.empty() && setting.variable.find('=') == std::string::npos,
                      "it is a variable's name");
        const char* before = std::getenv(setting.variable.c_str());
        const bool keeps = before && !setting.always;
        if (verbose_)
            std::fprintf(stderr, "heddle run: %s=%s%s\n", setting.variable.c_str(),
                         keeps ? before : setting.value.c_str(), keeps ? " (as it was)" : "");
        if (!keeps && ::setenv(setting.variable.c_str(), setting.value.c_str(), 1) != 0)
            throw ProgramError(cli_common::kRunFailed,
                               "cannot set " + setting.variable + ": " + std::strerror(errno));
    }

private:
    bool verbose_;
};

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& words,
                         bool verbose) {
    HEDDLE_ASSERT(!program.empty() && !words.empty(), "argument 0 is the program's name");
    std::vector<char*> arguments;
    for (const std::string& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    if (verbose) {
        std::string line;
        for (const std::string& word : words)
            line += " " + word;
        std::fprintf(stderr, "heddle run:%s\n", line.c_str());
    }
    const int reason = cli_common::execute(program, arguments.data());
    throw ProgramError(reason == ENOENT ? cli_common::kNotFound : cli_common::kCannotExecute,
                       program + ": " + std::strerror(reason));
}

std::vector<Setting> own_settings(const RunRequest& request) {
    std::vector<Setting> all{{"FI_PROVIDER", "heddle", true},
                             {"FI_PROVIDER_PATH", provider_folder(), true}};
    if (!request.endpoints.empty()) all.push_back({"FI_HEDDLE_ENDPOINTS", request.endpoints, true});
    if (!request.post.empty()) all.push_back({"FI_HEDDLE_POST", request.post, true});
    if (!request.rndv.empty()) all.push_back({"FI_HEDDLE_RNDV", request.rndv, true});
    if (!request.stats_file.empty())  // a path has a slash, whatever directory a rank is started in
        all.push_back(
            {"FI_HEDDLE_STATS", std::filesystem::absolute(request.stats_file).string(), true});
    return all;
}

Mpi mpi_of(const std::string& name) {
    static const std::map<std::string, Mpi> names{
        {"mpich", Mpi::kMpich}, {"openmpi", Mpi::kOpenMpi}, {"intel", Mpi::kIntel}};
    const auto found = names.find(name);
    return found == names.end() ? Mpi::kAuto : found->second;
}

[[noreturn]] void refuse_softhca() {
    throw ProgramError(cli_common::kRunFailed,
                       "--softhca always: the software HCA has no network between hosts yet; run "
                       "the job on one host, or on hosts with adapters");
}

// A line for each host on stderr. Throws ProgramError where something would stop the job.
void check_hosts(const RunRequest& request, const RemoteJob& job) {
    HostsRequest hosts;
    hosts.hosts = job.hosts;
    hosts.ssh = request.ssh;
    hosts.doctor.ranks = request.ranks;
    hosts.doctor.threads = request.threads;
    const HostsCheckup checkup(hosts);
    std::fputs((checkup.host_lines() + checkup.other_lines()).c_str(), stderr);
    if (checkup.problems() != 0)
        throw ProgramError(
            cli_common::kRunFailed,
            std::string("the job is not started: see above what to do, or start it all the same by "
                        "--no-check.") +
                (checkup.any_without_device()
                     ? " The software HCA is no substitute on several hosts: it has no network "
                       "between them yet"
                     : ""));
}

void run(const RunRequest& request, std::vector<std::string> command) {
    if (command.empty())
        throw ProgramError(cli_common::kRunFailed,
                           "no command to run; for instance: heddle run -n 4 ./program");
    std::string program = cli_common::find_program(command.front());
    Launcher launcher;
    if (request.ranks != 0) {
        launcher = find_launcher(request.ranks, program, demo_venvs());
        for (const std::string& each : launcher.refused)
            std::fprintf(stderr, "heddle run: not started: %s\n", each.c_str());
        HEDDLE_ASSERT(!launcher.words.empty(), "find_launcher() throws where there is none");
        command.insert(command.begin(), launcher.words.begin(), launcher.words.end());
        program = command.front();
    }
    const auto remote = remote_job(request.hosts, request.hostfile, command);
    const Machine machine = look(request.verbose);
    if (remote && request.softhca == "always" && !machine.software) refuse_softhca();
    // What this host has says nothing of others: a login node often has no adapter.
    const bool on_softhca =
        request.softhca == "always" || (request.softhca == "auto" && !machine.device && !remote);
    const bool starts_softhca = on_softhca && !machine.software;
    const bool is_software = on_softhca || machine.software;
    if (request.ranks != 0)
        std::fprintf(stderr, "heddle run: %u rank%s by %s, %s; on %s\n", request.ranks,
                     request.ranks == 1 ? "" : "s", program.c_str(), launcher.why.c_str(),
                     remote           ? "several hosts"
                     : is_software    ? "the software HCA"
                     : machine.device ? "the RDMA device"
                                      : "no device");
    else if (starts_softhca && request.softhca == "auto")
        std::fprintf(stderr, "heddle run: no RDMA device here; on the software HCA\n");
    if (!is_software && !machine.device && !remote)
        std::fprintf(stderr,
                     "heddle run: there is no RDMA device with an active port, and --softhca never "
                     "keeps the software HCA away: MPI will not find heddle\n");

    if (!request.record.empty() && !is_software && !remote)
        throw ProgramError(cli_common::kRunFailed,
                           "--record: a run is recorded on the software HCA, and there is an RDMA "
                           "device here; --softhca always does not use it");

    MpiRequest switches;
    switches.mpi = mpi_of(request.mpi);
    switches.within_node = request.within_node == "auto" ? on_softhca || machine.software
                                                         : request.within_node == "heddle";
    switches.threads = request.threads;
    switches.program = program;
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) switches.library_path = path;
    const Environment environment(request.verbose);
    std::vector<Setting> settings = own_settings(request);
    const auto add = [&settings](const std::vector<Setting>& more) {
        settings.insert(settings.end(), more.begin(), more.end());
    };
    add(mpi_settings(switches));
    if (request.yield == "auto") add(yield_settings(provider_folder()));
    if (launcher.is_openmpi && is_software) add(more_ranks_than_processors());
    for (const Setting& setting : settings)
        environment.set(setting);
    if (remote) {
        if (request.check && !remote->hosts.names.empty()) check_hosts(request, *remote);
        std::vector<std::string> words = variable_words(remote->kind, command, settings);
        for (const std::string& word : host_words(*remote, request.ranks))
            words.push_back(word);
        command.insert(command.begin() + 1, words.begin(), words.end());
    }

    const std::string record =
        request.record.empty() ? "" : std::filesystem::absolute(request.record).string();
    if (!starts_softhca) {
        if (!record.empty()) environment.set({"SOFTHCA_RECORD", record, true});
        become(program, command, request.verbose);
    }
    const std::string softhca = softhca_command();
    std::vector<std::string> words{softhca, "run"};
    if (!record.empty()) words.insert(words.end(), {"--record", record});
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    become(softhca, words, request.verbose);
}

// Signals for the program go to it. One that a terminal sends (SI_KERNEL) goes to all of its
// foreground processes, and so has reached the program: a second makes mpiexec give up at once.
std::atomic<pid_t> reported{0};

void forward_signals() {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    action.sa_sigaction = [](int number, siginfo_t* info, void*) {
        if (info->si_code != SI_KERNEL) ::kill(reported, number);
    };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        ::sigaction(signal, &action, nullptr);
}

int run_and_report(RunRequest request, const std::vector<std::string>& command) {
    const CountsFile file(request.stats_file);
    request.stats_file = file.path();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            run(request, command);
        } catch (const ProgramError& error) {
            std::fprintf(stderr, "heddle run: %s\n", error.what());
            std::_Exit(error.status());
        }
    }
    if (child < 0) throw ProgramError(cli_common::kRunFailed, "no more processes");
    HEDDLE_ASSERT(reported == 0, "signals go to one program");
    reported = child;
    forward_signals();
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const JobCounts job = file.read();
    if (request.stats) std::fputs(stats_report(job, request.ranks).c_str(), stderr);
    if (request.reuse_report) std::fputs(("\n" + reuse_report(job)).c_str(), stderr);
    if (request.explain) std::fputs(("\n" + tuple_report(job)).c_str(), stderr);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A value that the provider would refuse is refused here.
CLI::Validator possible(const char* option) {
    return {[option](std::string& text) -> std::string {
                for (const provider::OptionDeclaration& each : provider::option_declarations()) {
                    provider::Options ignored;
                    std::string message;
                    if (std::string(each.name) == option &&
                        !provider::apply_option(each, text, ignored, message))
                        return "'" + text + "' is not possible: it must be " + each.possible;
                }
                return {};
            },
            ""};
}

std::string possible_values(const char* option) {
    for (const provider::OptionDeclaration& each : provider::option_declarations())
        if (std::string(each.name) == option) return each.possible;
    return {};
}

}  // namespace

void add_run_command(CLI::App& app, const std::vector<std::string>& command, int* status) {
    CLI::App* run_app = app.add_subcommand(
        "run", "Start COMMAND (mpiexec, or with -n an MPI program) so that MPI runs over heddle");
    auto request = std::make_shared<RunRequest>();
    run_app->footer(
        "The options end at -- or at the first word that is none. For instance:\n"
        "  heddle run -n 4 ./program\n"
        "  heddle run --endpoints dynamic --threads 4 -- mpiexec -n 2 ./program");
    run_app
        ->add_option(
            "--ranks,--np,-n", request->ranks,
            "COMMAND is an MPI program: start so many of it, by the mpiexec of the MPI it is "
            "linked with (else: in PATH, srun in a job of Slurm's, make demo's); also -np N")
        ->default_str("")
        ->check(CLI::Range(1, 1'000'000));
    auto* named = run_app
                      ->add_option("--hosts,-H", request->hosts,
                                   "the hosts of the job, with commas between them; also -hosts "
                                   "(default: those of the launcher's words, or of the Slurm or "
                                   "PBS job)")
                      ->type_name("LIST");
    run_app
        ->add_option("--hostfile,-f", request->hostfile,
                     "the same from a file, a host a line; also -hostfile")
        ->type_name("FILE")
        ->excludes(named);
    run_app
        ->add_option("--ssh", request->ssh,
                     "the command that starts a program on a host, for the check of the hosts "
                     "(default: as heddle doctor's)")
        ->type_name("COMMAND");
    run_app->add_flag("!--no-check", request->check,
                      "start a job on other hosts without a look at each of them before");
    run_app
        ->add_option("--endpoints", request->endpoints,
                     "how much threads share: " + possible_values("endpoints"))
        ->check(possible("endpoints"));
    run_app
        ->add_option("--post", request->post,
                     "how work reaches the device: " + possible_values("post"))
        ->check(possible("post"));
    run_app
        ->add_option("--rndv", request->rndv,
                     "how large messages travel: " + possible_values("rndv"))
        ->check(possible("rndv"));
    run_app
        ->add_option("--threads", request->threads,
                     "so many threads of a process call MPI at once, each on a communicator of its "
                     "own (MPICH: VCIs)")
        ->check(CLI::Range(1, 1024));
    run_app->add_flag("--stats", request->stats,
                      "at the end: what the job took of the device and did, in a line; then all "
                      "counters that are not zero");
    run_app->add_option("--stats-file", request->stats_file,
                        "each process appends its counters to this file, as a line of JSON");
    run_app
        ->add_flag("--reuse-report", request->reuse_report,
                   "at the end: how small messages were sent, and how often buffers were used")
        ->excludes("--stats")
        ->excludes("--stats-file");
    run_app
        ->add_flag("--explain", request->explain,
                   "at the end: by which ways messages went, and why not by tuple queues (--rndv)")
        ->excludes("--stats")
        ->excludes("--stats-file");
    run_app
        ->add_option("--softhca", request->softhca,
                     "the software HCA: auto (if there is no device), always, never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    run_app
        ->add_option("--mpi", request->mpi,
                     "the MPI library whose variables to set: auto (all), mpich, openmpi, intel")
        ->check(CLI::IsMember({"auto", "mpich", "openmpi", "intel"}));
    run_app
        ->add_option("--within-node", request->within_node,
                     "messages between processes of one machine: mpi (shared memory of the MPI's "
                     "own), heddle, auto (heddle on the software HCA)")
        ->check(CLI::IsMember({"auto", "mpi", "heddle"}));
    run_app
        ->add_option("--yield", request->yield,
                     "what becomes of sched_yield, which MPICH and Intel MPI call after each look "
                     "for messages: auto (one call in 64 reaches the kernel while the thread has "
                     "its processor for itself), always (each does)")
        ->check(CLI::IsMember({"auto", "always"}));
    run_app
        ->add_option(
            "--record", request->record,
            "what each rank posts and waits for, to FILE (%p: its pid), for heddle predict; "
            "on the software HCA")
        ->type_name("FILE");
    run_app->add_flag("--verbose,-v", request->verbose, "say what is set and started");
    run_app->callback([request, &command, status] {
        try {
            if (request->stats || request->reuse_report || request->explain)
                *status = run_and_report(*request, command);
            else
                run(*request, command);
        } catch (const ProgramError& error) {
            std::fprintf(stderr, "heddle run: %s\n", error.what());
            *status = error.status();
        }
    });
}

}  // namespace heddle::cli
