// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/tuple_report.h"

#include <algorithm>
#include <sstream>

#include "cli/common/text.h"
#include "protocol/tupleq/tuple.h"

namespace heddle::cli {
namespace {

using TupleReasons = JobCounts::Reasons;

TupleReasons all_tuple_reasons(const JobCounts& job) {
    TupleReasons all = job.declined;
    for (const auto& [reason, count] : job.ended)
        all[reason] += count;
    return all;
}

std::uint64_t tuples_with(const TupleReasons& reasons, const std::string& reason) {
    const auto found = reasons.find(reason);
    return found == reasons.end() ? 0 : found->second;
}

// What there was most of, and why most tuples have no queue; empty: nothing is known.
std::string main_reason(const JobCounts& job) {
    TupleReasons all = all_tuple_reasons(job);
    all.erase(protocol::text_of(protocol::TupleReason::kClosing));
    const auto most = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == all.end() ? "" : most->first;
}

}  // namespace

std::string tuple_conclusion(const JobCounts& job) {
    const std::uint64_t sent = job.sent(), by_tuple = job.of("tuple_messages"),
                        large = job.of("rendezvous");
    if (sent == 0)
        return "The program sent no messages over heddle, so there is nothing for tuple queues.";
    const bool wanted = job.rndv.contains("tupleq") || job.rndv.contains("auto");
    if (!wanted && large == 0)
        return "Tuple queues were not asked for, and no message was above the eager size: --rndv "
               "auto would change nothing.";
    if (!wanted && large * 100 < sent)
        return "Tuple queues were not asked for, and only " + std::to_string(large) + " of " +
               std::to_string(sent) +
               " messages were above the eager size: --rndv auto would change little.";
    if (!wanted)
        return "Tuple queues were not asked for. " + percent_of(large, sent) +
               " of the messages are above the eager size: if their tags repeat, --rndv auto lets "
               "the device place them; heddle compare tells whether that is faster.";
    if (by_tuple * 2 >= sent && job.of("tuple_blocking") * 2 > by_tuple)
        return percent_of(by_tuple, sent) +
               " of the messages went to tuple queues, but most of these came before their "
               "receives: post receives earlier, or use --rndv rget.";
    if (by_tuple * 2 >= sent)
        return percent_of(by_tuple, sent) +
               " of the messages went to tuple queues: they suit this program.";
    const std::string reason = main_reason(job);
    if (by_tuple == 0 && job.of("tuples_asked") == 0 && reason.empty())
        return job.rndv.contains("tupleq")
                   ? "No tag repeated, so no tuple queue was opened: --rndv "
                     "rget does as well."
                   : "No large message repeated often enough for a tuple "
                     "queue: --rndv rget does as well.";
    return percent_of(by_tuple, sent) + " of the messages went to tuple queues" +
           (reason.empty() ? "." : "; what hindered most others: " + reason + ".") +
           (by_tuple * 10 < sent ? " --rndv rget does about as well." : "");
}

std::string tuple_report(const JobCounts& job) {
    if (job.processes == 0)
        return "No process has used heddle to its end: nothing is known of its messages.\n";
    const auto number = [&](const char* key) { return std::to_string(job.of(key)); };
    cli_common::TextTable modes({"way", "messages"});
    modes.add({"in the work queue entry", number("inlined")});
    modes.add({"eager", number("eager")});
    modes.add({"rendezvous", number("rendezvous")});
    modes.add({"tuple queues", number("tuple_messages")});
    if (job.of("tuple_messages") != 0) {
        modes.add({"  before their receives", number("tuple_blocking")});
        modes.add({"  copied, so that senders go on", number("tuple_copied")});
        modes.add({"  held back for a while", number("tuple_held")});
        modes.add({"  sent again otherwise", number("tuple_again")});
    }
    std::ostringstream out;
    out << "Messages of " << counted(job.processes, "process", "processes") << "\n\n"
        << modes.text();
    if (job.of("tuples_asked") != 0)
        out << "\nOf " << number("tuples_asked") << " tuples that repeated "
            << number("tuples_opened") << " got a queue, at most " << number("tuple_queues_peak")
            << " of an endpoint at once; " << number("tuple_posted")
            << " receives were posted to these, and " << number("tuple_received")
            << " done there.\n";
    if (const TupleReasons all = all_tuple_reasons(job); !all.empty()) {
        cli_common::TextTable reasons(
            {"no queue, or not for ever, because of", "declined", "ended"});
        for (const auto& [reason, ignored] : all)
            reasons.add({reason, std::to_string(tuples_with(job.declined, reason)),
                         std::to_string(tuples_with(job.ended, reason))});
        out << '\n' << reasons.text();
    }
    if (job.strange != 0) out << job.strange << " lines of other programs are not counted.\n";
    out << '\n' << cli_common::wrapped("Conclusion: " + tuple_conclusion(job), 0);
    return out.str();
}

}  // namespace heddle::cli
