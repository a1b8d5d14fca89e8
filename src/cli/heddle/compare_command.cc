// SPDX-License-Identifier: BSD-2-Clause
// heddle compare: a program plainly, over heddle, and over heddle with the options that its
// messages suggest, in rounds; and what to use. The runs over heddle are `heddle run`.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/common/program.h"
#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/job_counts.h"
#include "cli/heddle/launcher.h"
#include "cli/heddle/mpi_switches.h"
#include "cli/heddle/paired_times.h"
#include "cli/heddle/profile_advice.h"
#include "cli/heddle/reuse_report.h"
#include "cli/heddle/timed_run.h"

extern char** environ;

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;
using cli_common::file_contents;
using cli_common::ProgramError;
using cli_common::TextTable;

struct CompareRequest {
    unsigned ranks = 0;  // 0: the command has an mpiexec of its own
    int rounds = 7, warmup = 1;
    double patience = 600;
    std::string format = "text";
    bool json = false, null_model = false;
};

struct CompareVariant {
    std::string name, command;  // as a user would start it
    JobOrder order;
    std::vector<double> seconds;  // of each round
    std::string failure;          // how it ended, if it did badly; then it runs no more
    std::string output;           // the last lines of that run
};

// All that is known when the runs are over.
struct ComparedRuns {
    std::vector<CompareVariant> variants;  // plain first
    std::optional<JobCounts> profile;
    unsigned threads = 1;
    ProfileAdvice advice;
    bool software = false;  // heddle ran on softhca
};

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

// The list without libsofthca.so: a plain run is on what the machine has.
std::string without_softhca(const std::string& preloaded) {
    std::string list;
    std::size_t begin = 0;
    while (begin < preloaded.size()) {
        const std::size_t end = std::min(preloaded.find_first_of(": ", begin), preloaded.size());
        const std::string entry = preloaded.substr(begin, end - begin);
        if (!entry.empty() && !entry.ends_with("libsofthca.so"))
            list += (list.empty() ? "" : ":") + entry;
        begin = end + 1;
    }
    return list;
}

// What would put an MPI on heddle, or tell heddle something, is not for a plain run.
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
        if (const std::string list = without_softhca(value); list.empty())
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
    Wishes wishes;
    wishes.mpi = Mpi::kIntel;
    wishes.program = program;
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) wishes.library_path = path;
    for (const Setting& setting : mpi_settings(wishes))
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

bool all_well(const ComparedRuns& all) {
    for (const CompareVariant& variant : all.variants)
        if (!variant.failure.empty()) return false;
    return true;
}

// The first run over heddle, which is not timed: it writes its counts.
void look_at_profile(ComparedRuns& all, const ScratchFolder& scratch) {
    CompareVariant& heddle = all.variants[1];
    const JobOrder timed = heddle.order;
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
    Progress progress(runs);
    for (int round = -request.warmup; round < request.rounds; ++round) {
        const std::size_t count = all.variants.size();
        std::vector<double> seconds(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
            // Another begins in each round: what comes after what must not matter.
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
        for (std::size_t i = 0; i < count && round >= 0; ++i)
            if (all.variants[i].failure.empty()) all.variants[i].seconds.push_back(seconds[i]);
    }
}

const char* verdict_text(Verdict verdict) {
    switch (verdict) {
        case Verdict::kTooFewRounds:
            return "too few rounds";
        case Verdict::kNoDifference:
            return "no difference";
        case Verdict::kFaster:
            return "faster";
        case Verdict::kSlower:
            return "slower";
    }
    return "";
}

std::string interval_text(const std::optional<PairedTimes::Interval>& interval) {
    return interval ? fixed(interval->low, 2) + " to " + fixed(interval->high, 2) : "-";
}

// "takes 0.88 times as long as without heddle (95 % interval 0.85 to 0.92)".
std::string time_beside_plain(const PairedTimes& times) {
    return "takes " + fixed(times.ratio, 2) + " times as long as without heddle (95 % interval " +
           interval_text(times.interval) + ")";
}

constexpr double kWideInterval = 1.1;  // high / low, of one that hides what a user would want

// Why heddle cannot help, as far as the counts tell; empty: they do not.
std::string because(const ComparedRuns& all, double plain_seconds) {
    constexpr double kRareMessages = 1000;  // a second and process
    std::vector<std::string> reasons;
    if (all.profile && all.profile->sent() == 0) {
        reasons.push_back("the program sends no messages over heddle");
    } else if (all.profile) {
        const double rate = static_cast<double>(all.profile->sent()) / plain_seconds /
                            static_cast<double>(all.profile->processes);
        if (rate < kRareMessages)
            reasons.push_back("a process sends only " + fixed(rate, 0) +
                              " messages a second, so most of its time is not communication");
    }
    if (all.software)
        reasons.push_back(
            "heddle runs on softhca, which does an adapter's work on the processors "
            "that the program needs");
    if (all.profile && all.profile->of("unexpected") * 2 > all.profile->of("received"))
        reasons.push_back(percent_of(all.profile->of("unexpected"), all.profile->of("received")) +
                          " of the messages come before their receives are posted");
    std::string text;
    for (const std::string& reason : reasons)
        text += (text.empty() ? "" : "; ") + reason;
    return text;
}

std::string failures_of(const ComparedRuns& all) {
    const CompareVariant &plain = all.variants[0], &heddle = all.variants[1];
    std::string text;
    for (const CompareVariant& variant : all.variants)
        if (!variant.failure.empty())
            text += (text.empty() ? "" : " ") + ("\"" + variant.name + "\"") +
                    " failed: " + variant.failure + ".";
    if (!plain.failure.empty())
        return text + " The program fails without heddle" +
               (heddle.failure.empty() ? "" : ", too") + ": there is nothing to compare with.";
    if (!heddle.failure.empty())
        return text +
               " The program runs without heddle and fails over it: do not use heddle for it; "
               "this is heddle's error if the program is correct.";
    return text;
}

std::string advice_of_times(const CompareRequest& request, const ComparedRuns& all) {
    const CompareVariant &plain = all.variants[0], &second = all.variants[1];
    const PairedTimes times = paired_times(second.seconds, plain.seconds);
    if (times.verdict == Verdict::kTooFewRounds)
        return "Too few rounds for a conclusion: " + std::to_string(fewest_rounds()) +
               " are the least.";
    if (request.null_model)
        return times.verdict == Verdict::kNoDifference
                   ? "Null model: no difference between the program and itself, as it must be; "
                     "here "
                     "ratios from " +
                         interval_text(times.interval) + " are chance."
                   : "Null model: the program beside itself shows a difference, so this machine is "
                     "not steady enough for such runs: use more rounds, longer runs or an idle "
                     "machine.";
    const CompareVariant* best = &second;
    PairedTimes of_best = times;
    if (all.variants.size() > 2 && all.variants[2].failure.empty() &&
        paired_times(all.variants[2].seconds, second.seconds).verdict == Verdict::kFaster) {
        best = &all.variants[2];
        of_best = paired_times(best->seconds, plain.seconds);
    }
    std::string text;
    if (of_best.verdict == Verdict::kFaster) {
        text += "Use " + best->command + ": it " + time_beside_plain(of_best) + ".";
    } else {
        text += "heddle does not help here: ";
        text += of_best.verdict == Verdict::kSlower
                    ? "the program " + time_beside_plain(of_best)
                    : "no difference from the plain program (ratio " + fixed(of_best.ratio, 2) +
                          ", 95 % interval " + interval_text(of_best.interval) + ")";
        const std::string reasons = because(all, median(plain.seconds));
        text += reasons.empty() ? "." : ", because " + reasons + ".";
        if (of_best.verdict == Verdict::kNoDifference &&
            of_best.interval->high > kWideInterval * of_best.interval->low)
            text +=
                " The runs vary so much that a difference within that interval does not show: "
                "more rounds or a quieter machine narrow it.";
        if (best != &second) text += " Of the two over heddle, \"" + best->name + "\" is faster.";
    }
    if (all.software)
        text +=
            " heddle ran on softhca, a simulator, and the plain program by its MPI's own "
            "transport: these times do not predict any on hardware.";
    constexpr double kShort = 2;
    if (median(plain.seconds) < kShort)
        text +=
            " The runs are short, and starting the job is part of each: a longer run says more.";
    return text;
}

std::string recommendation(const CompareRequest& request, const ComparedRuns& all) {
    const std::string failures = failures_of(all);
    if (!all.variants[0].failure.empty() || !all.variants[1].failure.empty()) return failures;
    return failures + (failures.empty() ? "" : " ") + advice_of_times(request, all);
}

std::string profile_text(const ComparedRuns& all) {
    if (!all.profile)
        return "The run over heddle left no counts: nothing is known of its messages.\n";
    const JobCounts& job = *all.profile;
    std::string sizes;
    for (std::size_t i = 0; i < job.copied.size(); ++i) {
        const std::uint64_t count = job.copied[i] + (i < job.gathered.size() ? job.gathered[i] : 0);
        if (count != 0)
            sizes += ", " + percent_of(count, job.sent()) + " up to " +
                     std::to_string(std::uint64_t{1} << i) + " B";
    }
    const BufferUse use = buffer_use(job);
    std::string text = "Messages over heddle: " + counted(job.sent(), "message", "messages") +
                       " of " + counted(job.processes, "process", "processes");
    if (job.sent() != 0)
        text += ": " + percent_of(job.of("inlined"), job.sent()) + " inline" + sizes + ", " +
                percent_of(job.of("rendezvous"), job.sent()) + " by rendezvous; " +
                percent_of(job.of("unexpected"), job.of("received")) + " unexpected; " +
                std::to_string(use.often) + " of " + std::to_string(use.all) +
                " small buffers used " + std::to_string(BufferUse::kOften) + " times or more";
    text += "; " + counted(all.threads, "busy thread", "busy threads") + " a process.";
    std::string lines = cli_common::wrapped(text, 0);
    if (all.advice.empty()) lines += "They suggest no options.\n";
    for (const std::string& reason : all.advice.reasons)
        lines += cli_common::wrapped("Suggested: " + reason, 0);
    for (const std::string& note : all.advice.notes)
        lines += cli_common::wrapped("Note: " + note, 0);
    return lines;
}

void print_text(const CompareRequest& request, const ComparedRuns& all) {
    TextTable table({"", "median s", "quartiles", "ratio to plain", "95 % interval", ""});
    const std::vector<double>& plain = all.variants[0].seconds;
    for (const CompareVariant& variant : all.variants) {
        std::vector<std::string> row{variant.name, "-", "-", "-", "-", ""};
        if (!variant.seconds.empty()) {
            row[1] = fixed(median(variant.seconds), 3);
            row[2] = fixed(quartile(variant.seconds, 1), 3) + " to " +
                     fixed(quartile(variant.seconds, 3), 3);
        }
        if (&variant != all.variants.data() && variant.failure.empty() && !plain.empty()) {
            const PairedTimes times = paired_times(variant.seconds, plain);
            row[3] = fixed(times.ratio, 2);
            row[4] = interval_text(times.interval);
            row[5] = verdict_text(times.verdict);
        }
        if (!variant.failure.empty()) row[5] = "failed";
        table.add(std::move(row));
    }
    std::string text = table.text() + "\n";
    for (const CompareVariant& variant : all.variants)
        text += variant.name + ": " + variant.command + "\n";
    if (!request.null_model) text += "\n" + profile_text(all);
    for (const CompareVariant& variant : all.variants)
        if (!variant.failure.empty())
            text += "\n\"" + variant.name + "\" failed: " + variant.failure +
                    (variant.output.empty() ? ", without output\n"
                                            : "; its last lines were\n" + variant.output);
    text += "\n" + cli_common::wrapped("Conclusion: " + recommendation(request, all), 0);
    std::fputs(text.c_str(), stdout);
}

void print_json(const CompareRequest& request, const ComparedRuns& all) {
    Json variants = Json::array();
    for (const CompareVariant& variant : all.variants) {
        Json j{{"name", variant.name}, {"command", variant.command}, {"seconds", variant.seconds}};
        j["failure"] = variant.failure.empty() ? Json(nullptr) : Json(variant.failure);
        if (!variant.seconds.empty()) {
            j["median"] = median(variant.seconds);
            j["quartiles"] = {quartile(variant.seconds, 1), quartile(variant.seconds, 3)};
        }
        if (&variant != all.variants.data() && !variant.seconds.empty()) {
            const PairedTimes times = paired_times(variant.seconds, all.variants[0].seconds);
            j["ratio"] = times.ratio;
            j["interval"] =
                times.interval ? Json({times.interval->low, times.interval->high}) : Json(nullptr);
            j["verdict"] = verdict_text(times.verdict);
        }
        variants.push_back(j);
    }
    Json profile = nullptr;
    if (all.profile) {
        profile = Json{{"processes", all.profile->processes}, {"busy_threads", all.threads}};
        for (const provider::StatName& name : provider::kStatNames)
            profile[name.key] = all.profile->of(name.key);
        profile["copied_by_size"] = all.profile->copied;
        profile["gathered_by_size"] = all.profile->gathered;
        profile["buffers_by_uses"] = all.profile->by_uses;
        profile["suggested"] = all.advice.reasons;
        profile["notes"] = all.advice.notes;
    }
    const Json report{{"experiment", "compare"},      {"host", host_facts()},
                      {"software_hca", all.software}, {"rounds", request.rounds},
                      {"warmup", request.warmup},     {"variants", variants},
                      {"profile", profile},           {"conclusion", recommendation(request, all)}};
    std::printf("%s\n", report.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_csv(const ComparedRuns& all) {
    std::printf("variant,round,seconds\n");
    for (const CompareVariant& variant : all.variants)
        for (std::size_t i = 0; i < variant.seconds.size(); ++i)
            std::printf("%s,%zu,%.6f\n", variant.name.c_str(), i + 1, variant.seconds[i]);
}

int compare(CompareRequest request, const std::vector<std::string>& command) {
    if (command.empty())
        throw ProgramError(cli_common::kRunFailed,
                           "no command to run; for instance: heddle compare -n 4 ./program");
    if (request.json) request.format = "json";
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
        if (!all.variants[1].failure.empty()) {  // whose error is it?
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
    if (request.format == "json")
        print_json(request, all);
    else if (request.format == "csv")
        print_csv(all);
    else
        print_text(request, all);
    if (request.format == "csv")
        std::fprintf(stderr, "heddle compare: %s\n", recommendation(request, all).c_str());
    return all_well(all) ? 0 : kFailed;
}

}  // namespace

void add_compare_command(CLI::App& app, const std::vector<std::string>& command, int* status) {
    CLI::App* const compare_app = app.add_subcommand(
        "compare",
        "Time a program without heddle, over it, and with the options that its messages suggest");
    auto request = std::make_shared<CompareRequest>();
    compare_app->footer(
        "The options end at -- or at the first word that is none. For instance:\n"
        "  heddle compare -n 4 ./program\n"
        "  heddle compare --rounds 15 -- mpiexec -n 2 ./program\n"
        "Runs take turns; their input is /dev/null. Exit status 1: a run has failed.");
    compare_app
        ->add_option("--ranks,--np,-n", request->ranks,
                     "COMMAND is an MPI program: start so many of it, as heddle run -n does")
        ->check(CLI::Range(1, 1'000'000));
    compare_app
        ->add_option("--rounds", request->rounds,
                     "each way runs once in a round (6 are the least for a conclusion)")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    compare_app->add_option("--warmup", request->warmup, "rounds before these, which do not count")
        ->check(CLI::Range(0, 100))
        ->capture_default_str();
    compare_app
        ->add_option("--patience", request->patience,
                     "seconds after which a run is ended, and has failed")
        ->check(CLI::Range(0.1, 1e6))
        ->capture_default_str();
    compare_app->add_flag("--null", request->null_model,
                          "the program without heddle beside itself: must show no difference");
    compare_app
        ->add_option("--format", request->format, "text, json (all samples), csv (a line a run)")
        ->check(CLI::IsMember({"text", "json", "csv"}))
        ->capture_default_str();
    compare_app->add_flag("--json", request->json, "the same as --format json");
    compare_app->callback([request, &command, status] {
        try {
            *status = compare(*request, command);
        } catch (const ProgramError& error) {
            std::fprintf(stderr, "heddle compare: %s\n", error.what());
            *status = error.status();
        } catch (const Interrupted& interrupted) {
            std::fprintf(stderr, "heddle compare: ended by signal %d\n", interrupted.signal);
            *status = 128 + interrupted.signal;
        }
    });
}

}  // namespace heddle::cli
