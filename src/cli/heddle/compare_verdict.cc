// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/compare_verdict.h"

#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/bench_report.h"
#include "cli/heddle/reuse_report.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {

using cli_common::fixed;

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

namespace {

// "takes 0.88 times as long as without heddle (95 % interval 0.85 to 0.92)".
std::string time_beside_plain(const PairedTimes& times) {
    return "takes " + fixed(times.ratio, 2) + " times as long as without heddle (95 % interval " +
           interval_text(times.interval) + ")";
}

constexpr double kWideInterval = 1.1;  // high / low, of one that hides what a user would want

// Why heddle cannot help, as far as the counts tell; empty: they do not.
std::string because(const ComparedRuns& all, double plain_seconds) {
    HEDDLE_ASSERT(plain_seconds > 0 && (!all.profile || all.profile->processes != 0));
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
        HEDDLE_ASSERT(of_best.interval.has_value(), "a verdict is of an interval");
        if (of_best.verdict == Verdict::kNoDifference &&
            of_best.interval->high > kWideInterval * of_best.interval->low)
            text +=
                " The runs vary so much that a difference within that interval does not show: "
                "more rounds or a quieter machine narrow it.";
        if (best != &second)
            text += " \"" + best->name + "\" is the faster of the two over heddle.";
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

}  // namespace

std::string recommendation(const CompareRequest& request, const ComparedRuns& all) {
    const std::string failures = failures_of(all);
    if (!all.variants[0].failure.empty() || !all.variants[1].failure.empty()) return failures;
    return failures + (failures.empty() ? "" : " ") + advice_of_times(request, all);
}

}  // namespace heddle::cli
