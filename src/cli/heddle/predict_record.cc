// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/predict_record.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "cli/common/text.h"
#include "predict/likeness.h"
#include "predict/prediction.h"
#include "predict/record.h"
#include "predict/simulator.h"

namespace heddle::cli {
namespace {

using cli_common::fixed;
using predict::MachineFile;
using predict::Record;
using predict::Simulated;
using predict::Workload;

struct ReplayedRow {
    std::string label;
    Simulated simulated;
    std::optional<MachineFile::Interval> interval;
};

std::string count(std::uint64_t number, const std::string& what) {
    return std::to_string(number) + " " + what +
           (number == 1           ? ""
            : what.ends_with('s') ? "es"
                                  : "s");
}

// Why the rates may be worth less than they seem, a sentence each. `left_out`: requests that are in
// no category.
std::vector<std::string> warnings_of(const std::vector<Record>& records, const Workload& work,
                                     std::uint64_t left_out, const MachineFile& machine) {
    std::vector<std::string> all;
    std::uint64_t posted = 0, counted = 0, receives = 0, bytes = 0, reads = 0;
    bool is_truncated = false, has_totals = true;
    for (const Record& record : records) {
        posted += record.posted.wqes;
        counted += record.counted.wqes;
        bytes = std::max(bytes, record.most_bytes);
        reads += record.reads;
        is_truncated = is_truncated || record.is_truncated;
        has_totals = has_totals && record.has_totals;
        for (const Record::Cq& cq : record.cqs)
            receives += cq.polled > cq.signaled ? cq.polled - cq.signaled : 0;
    }
    if (is_truncated)
        all.emplace_back("a thread has filled its limit of lines: what came then is missing");
    if (!has_totals)
        all.emplace_back("the record has not the totals of all QPs: its end is missing");
    else if (posted != counted)
        all.push_back("the record has " + std::to_string(posted) +
                      " requests, the device counted " + std::to_string(counted));
    if (receives != 0)
        all.push_back(
            std::to_string(receives) +
            " completions were not of sends: waits for messages of other processes are not "
            "in the model");
    if (reads != 0)
        all.push_back(count(reads, "request") +
                      " are READs or atomics: the model has no cost for what comes back");
    if (left_out != 0)
        all.push_back(count(left_out, "request") +
                      " in no category: of queue pairs that no thread drives alone, or of threads "
                      "that hardly post");
    std::ranges::copy(predict::extrapolations(work.threads.size(), bytes, machine),
                      std::back_inserter(all));
    return all;
}

ReplayedRow replayed(const std::string& label, const Workload& work, const MachineFile& machine) {
    ReplayedRow row{label, predict::simulate(work, machine.machine), std::nullopt};
    if (const MachineFile::Interval* interval = predict::interval_for(machine, work))
        row.interval = *interval;
    return row;
}

void print_row(const ReplayedRow& row, const MachineFile& machine,
               const std::vector<std::string>& warnings) {
    using Json = nlohmann::ordered_json;
    const Simulated& its = row.simulated;
    const auto end = [&](double MachineFile::Interval::*which) {
        return row.interval ? Json(its.per_microsecond * ((*row.interval).*which)) : Json(nullptr);
    };
    std::printf("%s\n", Json{{"predicted_for", machine.name},
                             {"endpoints", row.label},
                             {"predicted_mmsgs_per_s", its.per_microsecond},
                             {"low", end(&MachineFile::Interval::low)},
                             {"high", end(&MachineFile::Interval::high)},
                             {"limited_by", predict::name(its.busiest())},
                             {"in_use", its.used(its.busiest())},
                             {"posts", its.counts.posts},
                             {"wqes", its.counts.wqes},
                             {"blueflame", its.counts.blueflame_posts},
                             {"cqes", its.counts.cqes},
                             {"payload_reads", its.counts.payload_reads},
                             {"warnings", warnings}}
                            .dump()
                            .c_str());
}

}  // namespace

void print_record(const std::vector<std::string>& files, const std::vector<Category>& categories,
                  const MachineFile& machine, bool json) {
    std::vector<Record> records;
    for (const std::string& file : files)
        records.push_back(predict::read_record(file));
    const Workload recorded = workload_of(records, machine.machine);
    if (recorded.threads.empty())
        throw std::invalid_argument("nothing is posted in " + files.front());
    std::vector<ReplayedRow> rows{replayed("as recorded", recorded, machine)};
    bool others = true;
    for (const Category category : categories) {
        const auto work = predict::workload_of(records, category, machine.machine);
        others = others && work.has_value();
        if (work) rows.push_back(replayed(std::string(name(category)), *work, machine));
    }
    const std::uint64_t left_out =
        rows.front().simulated.counts.wqes - rows.back().simulated.counts.wqes;
    const std::vector<std::string> warnings = warnings_of(records, recorded, left_out, machine);
    const auto posting = static_cast<std::size_t>(std::ranges::count_if(
        records, [](const Record& record) { return record.posted.wqes != 0; }));
    if (json) {
        for (const ReplayedRow& row : rows)
            print_row(row, machine, warnings);
        return;
    }
    std::printf("Predicted, not measured: %s\nWhat %s posted: %s of %s, %s of %s\n\n",
                machine.name.c_str(), records.front().program.c_str(),
                count(rows.front().simulated.counts.wqes, "request").c_str(),
                count(recorded.threads.size(), "thread").c_str(),
                count(rows.front().simulated.counts.posts, "post").c_str(),
                count(posting, "process").c_str());
    cli_common::TextTable table(
        {"endpoints", "M messages/s", "8 of 10 within", "limited by", "in use"});
    for (const ReplayedRow& row : rows) {
        const double rate = row.simulated.per_microsecond;
        const predict::Resource limit = row.simulated.busiest();
        table.add(
            {row.label, fixed(rate, 2) + (warnings.empty() ? "" : " ?"),
             row.interval
                 ? fixed(rate * row.interval->low, 2) + " to " + fixed(rate * row.interval->high, 2)
                 : "-",
             std::string(predict::name(limit)), fixed(100 * row.simulated.used(limit), 0) + " %"});
    }
    std::printf("%s\n", table.text().c_str());
    for (const std::string& warning : warnings)
        std::fputs(cli_common::wrapped("? " + warning + ".", 0).c_str(), stdout);
    std::fputs(
        cli_common::wrapped("Posting and waiting alone: what the program computes in between "
                            "is not in a record.",
                            0)
            .c_str(),
        stdout);
    if (!others)
        std::fputs(cli_common::wrapped("Categories are not predicted: more than a twentieth of the "
                                       "requests go to queue pairs that several threads drive.",
                                       0)
                       .c_str(),
                   stdout);
}

}  // namespace heddle::cli
