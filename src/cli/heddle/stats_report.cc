// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/stats_report.h"

#include <sstream>

#include "cli/common/text.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

std::string joined(const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

// "3102 messages sent: 3 % inline, 97 % eager"; ways that were not taken are left out.
std::string messages_of(const JobCounts& job) {
    const std::uint64_t sent = job.sent();
    std::string text = counted(sent, "message sent", "messages sent");
    const char* separator = ": ";
    for (const auto& [key, what] :
         {std::pair{"inlined", "inline"}, std::pair{"eager", "eager"},
          std::pair{"rendezvous", "by rendezvous"}, std::pair{"tuple_messages", "by tuple queues"}})
        if (job.of(key) != 0) {
            text += separator + percent_of(job.of(key), sent) + " " + what;
            separator = ", ";
        }
    if (job.of("received") != 0)
        text += "; " + percent_of(job.of("unexpected"), job.of("received")) +
                " of those received unexpected";
    if (job.of("rma") != 0)
        text += "; " + counted(job.of("rma"), "RMA operation", "RMA operations");
    if (job.of("atomics") != 0) text += "; " + counted(job.of("atomics"), "atomic", "atomics");
    return text;
}

}  // namespace

std::string stats_report(const JobCounts& job, unsigned ranks) {
    if (job.processes == 0)
        return "heddle: no process has used heddle to its end: nothing is known of its messages\n";
    std::ostringstream out;
    out << "heddle: " << counted(job.processes, "process", "processes") << ", "
        << joined(job.devices) << (job.software ? " (software HCA)" : "") << ", endpoints "
        << joined(job.categories) << "; " << messages_of(job) << '\n';
    const bool several = job.processes > 1;
    cli_common::TextTable table(several
                                    ? std::vector<std::string>{"", "all", "least", "most of one"}
                                    : std::vector<std::string>{"", "all"});
    for (std::size_t i = 0; i < JobCounts::kCounters; ++i) {
        const JobCounts::Counter& counter = job.counters[i];
        HEDDLE_ASSERT(counter.least <= counter.most, "each process has each counter");
        if (counter.all == 0) continue;
        std::vector<std::string> row{provider::kStatNames[i].text, std::to_string(counter.all)};
        if (several) {
            row.push_back(std::to_string(counter.least));
            row.push_back(std::to_string(counter.most));
        }
        table.add(std::move(row));
    }
    out << table.text();
    if (job.processes < ranks)
        out << "heddle: " << ranks - job.processes << " of " << ranks
            << " processes are not counted: they ended early, do not use heddle, or are on "
               "machines "
               "that do not share TMPDIR (FI_HEDDLE_STATS=stderr shows theirs)\n";
    if (job.strange != 0) out << job.strange << " lines of other programs are not counted.\n";
    return out.str();
}

}  // namespace heddle::cli
