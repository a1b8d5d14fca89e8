// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/compare_report.h"

#include <cstdio>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/compare_verdict.h"
#include "cli/heddle/reuse_report.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {

using cli_common::fixed;

namespace {

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
    HEDDLE_ASSERT(job.processes != 0, "a profile is of a process at least");
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

}  // namespace

void print_compared_text(const CompareRequest& request, const ComparedRuns& all) {
    HEDDLE_ASSERT(all.variants.size() >= 2, "there is a plain run and one beside it");
    cli_common::TextTable table(
        {"", "median s", "quartiles", "ratio to plain", "95 % interval", ""});
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

void print_compared_json(const CompareRequest& request, const ComparedRuns& all) {
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

void print_compared_csv(const ComparedRuns& all) {
    std::printf("variant,round,seconds\n");
    for (const CompareVariant& variant : all.variants)
        for (std::size_t i = 0; i < variant.seconds.size(); ++i)
            std::printf("%s,%zu,%.6f\n", variant.name.c_str(), i + 1, variant.seconds[i]);
}

}  // namespace heddle::cli
