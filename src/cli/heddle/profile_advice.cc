// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/profile_advice.h"

#include <algorithm>

#include "cli/heddle/reuse_report.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

// Shares of messages, in percent, from which on a kind of them is worth an option.
constexpr std::uint64_t kManyLarge = 1, kManyCopied = 10, kMostlySmall = 50, kMostlyLate = 50;
constexpr std::uint64_t kFewMessages = 1000;  // of a process: less is no profile
constexpr std::uint64_t kMostRings = 64;
constexpr std::size_t kRingSizes = 11;  // sizes up to 2^10, the default of FI_HEDDLE_RING_SIZE

bool at_least(std::uint64_t part, std::uint64_t share, std::uint64_t whole) {
    HEDDLE_ASSERT(share <= 100, "a share is in percent");
    return whole != 0 && part * 100 >= share * whole;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& sizes, std::size_t count) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < std::min(count, sizes.size()); ++i)
        sum += sizes[i];
    return sum;
}

void advise_threads(const JobCounts& job, unsigned threads, ProfileAdvice& advice) {
    if (threads < 2 || job.counter("endpoints").most != 1) return;
    const std::string count = std::to_string(threads);
    advice.options.insert(advice.options.end(), {"--threads", count});
    advice.reasons.push_back(
        count +
        " threads of a process compute and MPI has one endpoint for them: "
        "--threads gives each its own, if each uses a communicator of its own.");
}

void advise_large(const JobCounts& job, bool late, ProfileAdvice& advice) {
    const std::uint64_t large = job.of("rendezvous");
    if (!at_least(large, kManyLarge, job.sent()) || late ||
        job.rndv != std::set<std::string>{"rget"})
        return;
    advice.options.insert(advice.options.end(), {"--rndv", "auto"});
    advice.reasons.push_back(percent_of(large, job.sent()) +
                             " of the messages are above the eager size, and receives are mostly "
                             "there before them: by --rndv auto the device places those whose tags "
                             "repeat.");
}

void advise_copies(const JobCounts& job, ProfileAdvice& advice) {
    const std::uint64_t copied = sum_of(job.copied, job.copied.size());
    const BufferUse use = buffer_use(job);
    if (!at_least(copied, kManyCopied, job.sent()) || job.of("reuse_entries") == 0 ||
        job.of("reuse_registered") + job.of("reuse_refused") != 0)
        return;
    if (use.often != 0) {
        const std::string uses = std::to_string(BufferUse::kOften);
        advice.settings.push_back({"FI_HEDDLE_REUSE", uses, true});
        advice.reasons.push_back(std::to_string(use.often) + " of " + std::to_string(use.all) +
                                 " buffers were used " + uses +
                                 " times or more, and all messages of them were copied: "
                                 "FI_HEDDLE_REUSE sends them without a copy.");
    } else {
        advice.settings.push_back({"FI_HEDDLE_REUSE", "off", true});
        advice.reasons.push_back(
            "No buffer is used often: FI_HEDDLE_REUSE=off saves looking for those that are.");
    }
}

void advise_rings(const JobCounts& job, ProfileAdvice& advice) {
    const std::uint64_t small =
        job.of("inlined") + sum_of(job.copied, kRingSizes) + sum_of(job.gathered, kRingSizes);
    const std::uint64_t peers = job.counter("connections").most;
    if (!at_least(small, kMostlySmall, job.sent()) || peers == 0 || peers > kMostRings ||
        job.of("by_ring") != 0)
        return;
    advice.settings.push_back({"FI_HEDDLE_RINGS", std::to_string(peers), true});
    advice.reasons.push_back(percent_of(small, job.sent()) + " of the messages are small, and a " +
                             "process has at most " + counted(peers, "peer", "peers") +
                             ": FI_HEDDLE_RINGS has them written into a ring for each peer.");
}

}  // namespace

std::string ProfileAdvice::command() const {
    std::string text;
    for (const Setting& setting : settings)
        text += setting.variable + "=" + setting.value + " ";
    text += "heddle run";
    for (const std::string& word : options)
        text += " " + word;
    return text;
}

ProfileAdvice advice_of(const JobCounts& job, unsigned threads) {
    HEDDLE_ASSERT(job.processes != 0, "a profile is of a process at least");
    ProfileAdvice advice;
    const bool late =
        job.of("received") != 0 && at_least(job.of("unexpected"), kMostlyLate, job.of("received"));
    advise_threads(job, threads, advice);
    if (job.sent() >= kFewMessages * job.processes) {
        advise_rings(job, advice);
        advise_copies(job, advice);
    }
    advise_large(job, late, advice);
    if (late)
        advice.notes.push_back(percent_of(job.of("unexpected"), job.of("received")) +
                               " of the messages come before their receives are posted, and are "
                               "copied for that: post receives earlier where the program can.");
    HEDDLE_ASSERT(advice.reasons.empty() == (advice.options.empty() && advice.settings.empty()),
                  "each suggestion has its reason");
    return advice;
}

}  // namespace heddle::cli
