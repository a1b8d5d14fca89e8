// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/tuple_report.h"

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/text.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
using Counts = std::map<std::string, std::uint64_t>;

constexpr std::array kKeys{"inlined",        "eager",         "rendezvous",   "tuple_messages",
                           "tuple_blocking", "tuple_held",    "tuple_copied", "tuple_again",
                           "tuples_asked",   "tuples_opened", "tuple_queues", "tuple_posted",
                           "tuple_received"};

struct TupleSum {
    unsigned processes = 0, strange = 0;
    Counts counts, declined, ended;
    std::uint64_t at_once = 0;  // queues of an endpoint

    std::string of(const char* key) const { return std::to_string(counts.at(key)); }
};

void add(TupleSum& sum, const Json& line) {
    TupleSum with = sum;  // all of a line, or nothing
    for (const char* const key : kKeys)
        with.counts[key] += line.at(key).get<std::uint64_t>();
    for (const auto& [key, to] :
         {std::pair{"tuples_declined", &with.declined}, std::pair{"tuples_ended", &with.ended}})
        for (const auto& [reason, count] : line.at(key).items())
            (*to)[reason] += count.get<std::uint64_t>();
    with.at_once = std::max(with.at_once, line.at("tuple_queues_peak").get<std::uint64_t>());
    ++with.processes;
    sum = with;
}

}  // namespace

std::string tuple_report(const std::string& lines) {
    TupleSum sum;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
        try {
            add(sum, Json::parse(line));
        } catch (const Json::exception&) {
            ++sum.strange;
        }
    }
    if (sum.processes == 0)
        return "No process has used heddle to its end: nothing is known of its messages.\n";
    softhca::cli::TextTable ways({"way", "messages"});
    ways.add({"in the work queue entry", sum.of("inlined")});
    ways.add({"eager", sum.of("eager")});
    ways.add({"rendezvous", sum.of("rendezvous")});
    ways.add({"tuple queues", sum.of("tuple_messages")});
    ways.add({"  before their receives", sum.of("tuple_blocking")});
    ways.add({"  copied, so that senders go on", sum.of("tuple_copied")});
    ways.add({"  held back for a while", sum.of("tuple_held")});
    ways.add({"  sent again otherwise", sum.of("tuple_again")});
    std::ostringstream out;
    out << "Messages of " << sum.processes << " processes\n\n"
        << ways.text() << "\nOf " << sum.of("tuples_asked") << " tuples that repeated "
        << sum.of("tuples_opened") << " got a queue, at most " << sum.at_once
        << " of an endpoint at once; " << sum.of("tuple_posted")
        << " receives were posted to these, and " << sum.of("tuple_received") << " done there.\n";
    if (!sum.declined.empty() || !sum.ended.empty()) {
        softhca::cli::TextTable reasons(
            {"no queue, or not for ever, because of", "declined", "ended"});
        Counts all = sum.declined;
        all.insert(sum.ended.begin(), sum.ended.end());
        for (const auto& [reason, ignored] : all)
            reasons.add(
                {reason, std::to_string(sum.declined[reason]), std::to_string(sum.ended[reason])});
        out << '\n' << reasons.text();
    }
    if (sum.strange != 0) out << sum.strange << " lines of other programs are not counted.\n";
    return out.str();
}

}  // namespace heddle::cli
