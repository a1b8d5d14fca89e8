// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/reuse_report.h"

#include <bit>
#include <cstdio>
#include <sstream>

#include "cli/common/text.h"

namespace heddle::cli {
namespace {

std::string share(std::uint64_t part, std::uint64_t rest) {
    if (part + rest == 0) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2f",
                  100 * static_cast<double>(part) / static_cast<double>(part + rest));
    return text;
}

struct Copies {
    std::uint64_t copied = 0, gathered = 0;
    std::uint64_t all() const { return copied + gathered; }
};

Copies copies_of(const JobCounts& job) {
    Copies copies;
    for (const std::uint64_t each : job.copied)
        copies.copied += each;
    for (const std::uint64_t each : job.gathered)
        copies.gathered += each;
    return copies;
}

}  // namespace

BufferUse buffer_use(const JobCounts& job) {
    static_assert(std::has_single_bit(BufferUse::kOften));
    BufferUse use;
    for (std::size_t i = 1; i < job.by_uses.size(); ++i) {
        use.all += job.by_uses[i];
        if (std::uint64_t{1} << (i - 1) >= BufferUse::kOften) use.often += job.by_uses[i];
    }
    return use;
}

std::string reuse_conclusion(const JobCounts& job) {
    const Copies copies = copies_of(job);
    const BufferUse use = buffer_use(job);
    const std::string buffers = std::to_string(use.often) + " of " + std::to_string(use.all) +
                                " were used " + std::to_string(BufferUse::kOften) +
                                " times or more";
    if (job.sent() == 0 && job.of("rma") == 0)
        return "The program sent nothing over heddle, so there is nothing to save.";
    if (copies.all() == 0)
        return "No message has a size at which a copy can be saved, so reuse does not matter to "
               "this program.";
    const std::string many = percent_of(copies.all(), job.sent());
    if (copies.all() * 10 < job.sent())
        return "Only " + many +
               " of the messages have a size at which a copy can be saved, so reuse hardly matters "
               "to this program.";
    const std::string saved = percent_of(copies.gathered, copies.all());
    if (copies.gathered * 2 >= copies.all())
        return "The program uses its buffers again: " + saved +
               " of its messages of these sizes went without a copy. There is nothing to change.";
    if (job.of("reuse_entries") == 0)
        return "Reuse is off (FI_HEDDLE_REUSE), so all these messages were copied; with "
               "FI_HEDDLE_REUSE=auto this report shows whether that pays.";
    if (job.of("reuse_refused") > job.of("reuse_registered"))
        return "Most buffers that are used again could not be registered: raise RLIMIT_MEMLOCK "
               "(ulimit -l).";
    if (use.often > 0 && job.of("reuse_registered") == 0)
        return "Buffers are used again (" + buffers +
               "), but a copy costs less than what the device does instead on this host (heddle "
               "calibrate shows the costs). FI_HEDDLE_REUSE=" +
               std::to_string(BufferUse::kOften) +
               " sends such buffers without a copy; heddle compare tells which is faster.";
    if (use.often > 0)
        return "Buffers are used again (" + buffers + "); " + saved +
               " of the messages of these sizes went without a copy. The share grows with the "
               "length of the run.";
    return "Few buffers are used again (" + buffers +
           "), so copying is right. FI_HEDDLE_REUSE=off saves looking for them.";
}

std::string reuse_report(const JobCounts& job) {
    if (job.processes == 0)
        return "No process has used heddle to its end: nothing is known of its messages.\n";
    cli_common::TextTable messages({"bytes, up to", "copied", "not copied", "% not copied"});
    const Copies copies = copies_of(job);
    for (std::size_t i = 0; i < job.copied.size(); ++i) {
        const std::uint64_t of_size = i < job.gathered.size() ? job.gathered[i] : 0;
        if (job.copied[i] + of_size != 0)
            messages.add({std::to_string(std::uint64_t{1} << i), std::to_string(job.copied[i]),
                          std::to_string(of_size), share(of_size, job.copied[i])});
    }
    messages.add({"all", std::to_string(copies.copied), std::to_string(copies.gathered),
                  share(copies.gathered, copies.copied)});
    cli_common::TextTable uses({"uses", "buffers"});
    for (std::size_t i = 1; i < job.by_uses.size(); ++i) {
        if (job.by_uses[i] == 0) continue;
        const std::uint64_t first = std::uint64_t{1} << (i - 1), last = 2 * first - 1;
        uses.add({first == last ? std::to_string(first)
                                : std::to_string(first) + " to " + std::to_string(last),
                  std::to_string(job.by_uses[i])});
    }
    std::ostringstream out;
    out << "Eager messages of " << counted(job.processes, "process", "processes")
        << " that are too long for the work queue entry\n\n"
        << messages.text() << "\nBesides: " << job.of("inlined") << " inline, "
        << job.of("rendezvous") << " by rendezvous. Written into rings: " << job.of("by_ring")
        << ".\nSmall RMA: " << job.of("rma_copied") << " copied, " << job.of("rma_direct")
        << " not.\n";
    if (!uses.empty())
        out << "\nBuffers in the tables at the end, by their uses (lately)\n\n" << uses.text();
    out << "\nRegistered " << job.of("reuse_registered") << "; of those ended "
        << job.of("reuse_gone") << " as their memory went and " << job.of("reuse_aged")
        << " as they were used no more. Could not be: " << job.of("reuse_refused")
        << ".\nThe tables have " << job.of("reuse_entries") << " entries, and rested for "
        << job.of("reuse_rests") << " epochs.\n";
    if (job.strange != 0) out << job.strange << " lines of other programs are not counted.\n";
    out << '\n' << cli_common::wrapped("Conclusion: " + reuse_conclusion(job), 0);
    return out.str();
}

}  // namespace heddle::cli
