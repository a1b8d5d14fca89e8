// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/compare_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "cli/common/program.h"
#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/launcher.h"
#include "cli/heddle/mpi_switches.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;
using cli_common::file_contents;
using cli_common::ProgramError;

class ScratchFolder {
public:
    ScratchFolder() {
        path_ = (fs::temp_directory_path() / "heddle-compare-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr)
            throw ProgramError(cli_common::kRunFailed, path_ + ": " + std::strerror(errno));
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    ~ScratchFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    std::string file(const char* name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

std::string last_lines(const std::string& text, std::size_t count) {
    std::size_t begin = text.size();
    while (begin > 0 && count > 0)
        if (text[--begin] == '\n' && begin + 1 < text.size() && --count == 0) ++begin;
    std::string shown;
    std::istringstream lines(text.substr(begin));
    for (std::string line; std::getline(lines, line);)
        shown += "    | " + cli_common::printable(line, 200) + "\n";
    return shown;
}

// "./program -x 'two words'".
std::string command_line(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) {
        const bool plain =
            !word.empty() && word.find_first_of(" \t\n'\"\\$`*?&|;<>(){}[]#~") == std::string::npos;
        line += (line.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
    }
    return line;
}

// A plain run has no variable that puts an MPI on heddle or sets an option of heddle, and is on
// what the machine has.
void make_plain(JobOrder& order) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry, name = text.substr(0, text.find('='));
        const std::string value = text.substr(std::min(name.size() + 1, text.size()));
        const bool names_heddle =
            value == "heddle" && (name == "FI_PROVIDER" || name == "I_MPI_OFI_PROVIDER");
        if (name.starts_with("FI_HEDDLE_") || names_heddle) order.unset.push_back(name);
        if (name == "FI_PROVIDER_PATH" && fs::exists(fs::path(value) / "libheddle-fi.so"))
            order.unset.push_back(name);
        if (name != "LD_PRELOAD") continue;
        if (const std::string list =
                cli_common::preloaded_without(value, {"libsofthca.so", kYieldLibrary});
            list.empty())
            order.unset.push_back(name);
        else
            order.set.push_back({name, list, true});
    }
}

CompareVariant plain_variant(const CompareRequest& request, const std::vector<std::string>& command,
                             const char* name) {
    CompareVariant variant;
    variant.name = name;
    variant.order.words = command;
    std::string program = cli_common::find_program(command.front());
    if (request.ranks != 0) {
        const Launcher launcher = find_launcher(request.ranks, program, demo_venvs());
        variant.order.words = launcher.words;
        variant.order.words.insert(variant.order.words.end(), command.begin(), command.end());
        program = launcher.words.front();
        if (launcher.is_openmpi &&
            request.ranks > static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN)))
            variant.order.set = more_ranks_than_processors();
    }
    // PyPI's Intel MPI does not find its own libfabric without that, whatever it runs over.
    MpiRequest libraries;
    libraries.mpi = Mpi::kIntel;
    libraries.program = program;
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) libraries.library_path = path;
    for (const Setting& setting : mpi_settings(libraries))
        if (setting.variable == "LD_LIBRARY_PATH") variant.order.set.push_back(setting);
    make_plain(variant.order);
    variant.command = command_line(variant.order.words);
    return variant;
}

CompareVariant heddle_variant(const CompareRequest& request,
                              const std::vector<std::string>& command, const char* name,
                              const ProfileAdvice& advice) {
    CompareVariant variant;
    variant.name = name;
    std::vector<std::string> words = advice.options;
    if (request.ranks != 0) words.insert(words.end(), {"-n", std::to_string(request.ranks)});
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    variant.order.words = {own_path().string(), "run"};
    variant.order.words.insert(variant.order.words.end(), words.begin(), words.end());
    variant.order.set = advice.settings;
    variant.command = "heddle run " + command_line(words);
    for (auto setting = advice.settings.rbegin(); setting != advice.settings.rend(); ++setting)
        variant.command = setting->variable + "=" + setting->value + " " + variant.command;
    return variant;
}

TimedRun run_variant(CompareVariant& variant) {
    HEDDLE_ASSERT(variant.failure.empty(), "what has failed is not run again");
    HEDDLE_ASSERT(!variant.order.words.empty() && !variant.order.output.empty());
    const TimedRun run = run_job(variant.order);
    if (!run.succeeded()) {
        variant.failure = run.end();
        variant.output = last_lines(file_contents(variant.order.output), 8);
    }
    return run;
}

// Threads that compute at the same time, of the rank that has most of them.
unsigned threads_of(const JobCounts& job, const TimedRun& run) {
    unsigned threads = 1;
    for (const int pid : job.pids)
        if (const auto found = run.busy_threads.find(pid); found != run.busy_threads.end())
            threads = std::max(threads, found->second);
    return threads;
}

// The first run over heddle is not timed; it writes its counts.
void look_at_profile(ComparedRuns& all, const ScratchFolder& scratch) {
    HEDDLE_ASSERT(all.variants.size() == 2 && !all.profile, "the first run is the profile");
    CompareVariant& heddle = all.variants[1];
    const JobOrder timed = heddle.order;
    HEDDLE_ASSERT(timed.words.size() > 2 && timed.words[1] == "run", "its options come third");
    const std::string file = scratch.file("stats");
    heddle.order.words.insert(heddle.order.words.begin() + 2, {"--stats-file", file});
    heddle.order.counts_threads = true;
    const TimedRun run = run_variant(heddle);
    heddle.order = timed;
    all.software = file_contents(timed.output).find("on the software HCA") != std::string::npos;
    const JobCounts job = job_counts(file_contents(file));
    if (job.processes == 0) return;
    all.profile = job;
    all.software = job.software;
    all.threads = threads_of(job, run);
    all.advice = advice_of(job, all.threads);
}

void measure(const CompareRequest& request, ComparedRuns& all) {
    const std::size_t runs =
        all.variants.size() * static_cast<std::size_t>(request.rounds + request.warmup);
    HEDDLE_ASSERT(all_well(all) && all.variants.size() >= 2, "there is something to compare");
    Progress progress(runs);
    for (int round = -request.warmup; round < request.rounds; ++round) {
        const std::size_t count = all.variants.size();
        std::vector<double> seconds(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
            // Another variant begins in each round, so that their order does not matter.
            const std::size_t which =
                (i + static_cast<std::size_t>(round + request.warmup)) % count;
            CompareVariant& variant = all.variants[which];
            progress.step((round < 0 ? "warm-up" : "round " + std::to_string(round + 1)) + ", " +
                          variant.name);
            if (!variant.failure.empty()) continue;
            seconds[which] = run_variant(variant).seconds;
            if (!variant.failure.empty())
                variant.failure +=
                    round < 0 ? " in the warm-up" : " in round " + std::to_string(round + 1);
        }
        // Without a baseline, or with nothing beside it, there is no more to be learnt.
        if (!all.variants[0].failure.empty() || !all.variants[1].failure.empty()) return;
        for (std::size_t i = 0; i < count && round >= 0; ++i) {
            CompareVariant& variant = all.variants[i];
            if (!variant.failure.empty()) continue;
            HEDDLE_ASSERT(
                variant.seconds.size() == static_cast<std::size_t>(round) && seconds[i] > 0,
                "each variant runs once in a round");
            variant.seconds.push_back(seconds[i]);
        }
    }
}

}  // namespace

bool all_well(const ComparedRuns& all) {
    for (const CompareVariant& variant : all.variants)
        if (!variant.failure.empty()) return false;
    return true;
}

ComparedRuns measure_runs(const CompareRequest& request, const std::vector<std::string>& command) {
    const ScratchFolder scratch;
    ComparedRuns all;
    all.variants.push_back(plain_variant(request, command, "plain"));
    all.variants.push_back(request.null_model
                               ? plain_variant(request, command, "plain again")
                               : heddle_variant(request, command, "heddle", ProfileAdvice()));
    for (CompareVariant& variant : all.variants) {
        variant.order.output = scratch.file("output");
        variant.order.patience = request.patience;
    }
    std::fprintf(stderr, "heddle compare: %s; %d rounds\n", all.variants[0].command.c_str(),
                 request.rounds);
    prepare_for_jobs();
    if (!request.null_model) {
        look_at_profile(all, scratch);
        if (!all.variants[1].failure.empty()) {  // does the program fail without heddle, too?
            all.variants[1].failure += " in the first run";
            run_variant(all.variants[0]);
            if (!all.variants[0].failure.empty()) all.variants[0].failure += " in the first run";
        } else if (!all.advice.empty()) {
            CompareVariant suggested = heddle_variant(request, command, "suggested", all.advice);
            suggested.order.output = scratch.file("output");
            suggested.order.patience = request.patience;
            all.variants.push_back(std::move(suggested));
        }
    }
    if (all_well(all)) measure(request, all);
    return all;
}

}  // namespace heddle::cli
