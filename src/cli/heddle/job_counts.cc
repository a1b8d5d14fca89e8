// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/job_counts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

void add_list(std::vector<std::uint64_t>& to, const Json& from) {
    const auto more = from.get<std::vector<std::uint64_t>>();
    if (to.size() < more.size()) to.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i)
        to[i] += more[i];
}

void add_reasons(JobCounts::Reasons& to, const Json& from) {
    for (const auto& [reason, count] : from.items())
        to[reason] += count.get<std::uint64_t>();
}

void add_line(JobCounts& job, const Json& line) {
    if (line.at("when") != "end") return;
    JobCounts with = job;  // all of a line, or nothing
    for (std::size_t i = 0; i < JobCounts::kCounters; ++i) {
        const provider::StatName& name = provider::kStatNames[i];
        const auto value = line.at(name.key).get<std::uint64_t>();
        JobCounts::Counter& counter = with.counters[i];
        counter.all = name.is_peak ? std::max(counter.all, value) : counter.all + value;
        counter.least = std::min(counter.least, value);
        counter.most = std::max(counter.most, value);
    }
    add_list(with.copied, line.at("copied_by_size"));
    add_list(with.gathered, line.at("gathered_by_size"));
    add_list(with.by_uses, line.at("buffers_by_uses"));
    add_reasons(with.declined, line.at("tuples_declined"));
    add_reasons(with.ended, line.at("tuples_ended"));
    with.devices.insert(line.at("device").get<std::string>());
    with.categories.insert(line.at("category").get<std::string>());
    with.rndv.insert(line.at("rndv").get<std::string>());
    with.software = with.software || line.at("software").get<bool>();
    with.pids.push_back(line.at("pid").get<int>());
    ++with.processes;
    HEDDLE_ASSERT(with.pids.size() == with.processes, "each line is of one process");
    job = std::move(with);
}

}  // namespace

const JobCounts::Counter& JobCounts::counter(std::string_view key) const {
    for (std::size_t i = 0; i < kCounters; ++i)
        if (key == provider::kStatNames[i].key) return counters[i];
    throw std::logic_error("no counter is called " + std::string(key));
}

std::uint64_t JobCounts::sent() const {
    return of("inlined") + of("eager") + of("rendezvous") + of("tuple_messages");
}

JobCounts job_counts(const std::string& lines) {
    JobCounts job;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
        try {
            add_line(job, Json::parse(line));
        } catch (const Json::exception&) {
            ++job.strange;
        }
    }
    return job;
}

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return "-";
    if (part > 0 && part * 200 < whole) return "<1 %";
    return std::to_string((part * 200 + whole) / (2 * whole)) + " %";
}

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace heddle::cli
