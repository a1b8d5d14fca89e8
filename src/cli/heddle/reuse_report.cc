// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/reuse_report.h"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/text.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

// What all processes have together.
struct ReuseSum {
    unsigned processes = 0, strange = 0;
    std::vector<std::uint64_t> copied, gathered, by_uses;
    std::uint64_t inlined = 0, rendezvous = 0, by_ring = 0, rma_copied = 0, rma_direct = 0,
                  registered = 0, refused = 0, gone = 0, aged = 0, entries = 0, rests = 0;
};

void add(std::vector<std::uint64_t>& to, const Json& from) {
    const auto more = from.get<std::vector<std::uint64_t>>();
    if (to.size() < more.size()) to.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i)
        to[i] += more[i];
}

void add(ReuseSum& sum, const Json& j) {
    ReuseSum with = sum;  // all of a line, or nothing
    add(with.copied, j.at("copied_by_size"));
    add(with.gathered, j.at("gathered_by_size"));
    add(with.by_uses, j.at("buffers_by_uses"));
    const std::pair<const char*, std::uint64_t*> numbers[] = {
        {"inlined", &with.inlined},       {"rendezvous", &with.rendezvous},
        {"by_ring", &with.by_ring},       {"rma_copied", &with.rma_copied},
        {"rma_direct", &with.rma_direct}, {"reuse_registered", &with.registered},
        {"reuse_refused", &with.refused}, {"reuse_gone", &with.gone},
        {"reuse_aged", &with.aged},       {"reuse_entries", &with.entries},
        {"reuse_rests", &with.rests},
    };
    for (const auto& [key, value] : numbers)
        *value += j.at(key).get<std::uint64_t>();
    ++with.processes;
    sum = with;
}

std::string share(std::uint64_t part, std::uint64_t rest) {
    if (part + rest == 0) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2f",
                  100 * static_cast<double>(part) / static_cast<double>(part + rest));
    return text;
}

}  // namespace

std::string reuse_report(const std::string& lines) {
    ReuseSum sum;
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
    softhca::cli::TextTable messages({"bytes, up to", "copied", "not copied", "% not copied"});
    std::uint64_t copied = 0, gathered = 0;
    for (std::size_t i = 0; i < sum.copied.size(); ++i) {
        const std::uint64_t of_size = i < sum.gathered.size() ? sum.gathered[i] : 0;
        copied += sum.copied[i];
        gathered += of_size;
        if (sum.copied[i] + of_size != 0)
            messages.add({std::to_string(std::uint64_t{1} << i), std::to_string(sum.copied[i]),
                          std::to_string(of_size), share(of_size, sum.copied[i])});
    }
    messages.add(
        {"all", std::to_string(copied), std::to_string(gathered), share(gathered, copied)});
    softhca::cli::TextTable uses({"uses", "buffers"});
    for (std::size_t i = 1; i < sum.by_uses.size(); ++i) {
        if (sum.by_uses[i] == 0) continue;
        const std::uint64_t first = std::uint64_t{1} << (i - 1), last = 2 * first - 1;
        uses.add({first == last ? std::to_string(first)
                                : std::to_string(first) + " to " + std::to_string(last),
                  std::to_string(sum.by_uses[i])});
    }
    std::ostringstream out;
    out << "Eager messages of " << sum.processes
        << " processes that are too long for the work queue entry\n\n"
        << messages.text() << "\nBesides: " << sum.inlined << " inline, " << sum.rendezvous
        << " by rendezvous. Written into rings: " << sum.by_ring
        << ".\nSmall RMA: " << sum.rma_copied << " copied, " << sum.rma_direct
        << " not.\n\nBuffers in the tables at the end, by their uses (lately)\n\n"
        << uses.text() << "\nRegistered " << sum.registered << "; of those ended " << sum.gone
        << " as their memory went and " << sum.aged
        << " as they were used no more. Could not be: " << sum.refused << ".\nThe tables have "
        << sum.entries << " entries, and rested for " << sum.rests << " epochs.\n";
    if (sum.strange != 0) out << sum.strange << " lines of other programs are not counted.\n";
    return out.str();
}

}  // namespace heddle::cli
