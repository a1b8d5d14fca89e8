// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/top_view.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/common/text.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using cli_common::short_number;
using cli_common::TextTable;
using provider::EndpointValue;
using provider::kEndpointFields;
using provider::kProcessFields;
using Json = nlohmann::ordered_json;

constexpr EndpointValue kMessages[] = {EndpointValue::kInlined,    EndpointValue::kEager,
                                       EndpointValue::kGathered,   EndpointValue::kByRing,
                                       EndpointValue::kRendezvous, EndpointValue::kTuple,
                                       EndpointValue::kRma,        EndpointValue::kAtomics,
                                       EndpointValue::kReceived,   EndpointValue::kUnexpected};
constexpr EndpointValue kQueues[] = {EndpointValue::kPeers,     EndpointValue::kUnderWay,
                                     EndpointValue::kHeld,      EndpointValue::kAnswers,
                                     EndpointValue::kReceives,  EndpointValue::kMessages,
                                     EndpointValue::kTuplesOut, EndpointValue::kTuplesIn};

template <std::size_t kValues>
void add_rates(const std::array<provider::LiveField, kValues>& fields,
               const std::array<std::uint64_t, kValues>& before, std::uint64_t then_ns,
               const std::array<std::uint64_t, kValues>& now, std::uint64_t now_ns,
               std::array<double, kValues>& out) {
    if (now_ns <= then_ns) return;  // nothing new
    const double seconds = static_cast<double>(now_ns - then_ns) * 1e-9;
    HEDDLE_ASSERT(seconds > 0, "a rate is of some time");
    for (std::size_t i = 0; i < kValues; ++i)
        if (fields[i].counter && now[i] > before[i])
            out[i] = static_cast<double>(now[i] - before[i]) / seconds;
}

template <class Items, class Wanted>
auto found_in(const Items& items, const Wanted& wanted) {
    const auto found = std::find_if(items.begin(), items.end(), wanted);
    return found != items.end() ? &*found : nullptr;
}

// All endpoints of the process as one.
EndpointRates sum_of(const ProcessRates& process) {
    EndpointRates sum;
    sum.age = process.endpoints.empty() ? 0 : process.endpoints.front().age;
    for (const EndpointRates& each : process.endpoints) {
        for (std::size_t i = 0; i < sum.rates.size(); ++i) {
            sum.rates[i] += each.rates[i];
            sum.values[i] += each.values[i];
        }
        sum.age = std::min(sum.age, each.age);
    }
    return sum;
}

double activity(const EndpointRates& endpoint) {
    return endpoint.of(EndpointValue::kInlined) + endpoint.of(EndpointValue::kEager) +
           endpoint.of(EndpointValue::kRendezvous) + endpoint.of(EndpointValue::kTuple) +
           endpoint.of(EndpointValue::kRma) + endpoint.of(EndpointValue::kAtomics) +
           endpoint.of(EndpointValue::kReceived);
}

struct EndpointRow {
    const ProcessRates* process;
    EndpointRates endpoint;
    std::string number;  // of the endpoint, or of how many
};

std::vector<EndpointRow> rows_of(const TopRates& rates, const TopForm& form) {
    const bool by_process = form.by_process || form.view == TopView::kResources;
    std::vector<EndpointRow> rows;
    for (const ProcessRates& process : rates.processes) {
        if (by_process)
            rows.push_back({&process, sum_of(process), std::to_string(process.endpoints.size())});
        else
            for (const EndpointRates& each : process.endpoints)
                rows.push_back({&process, each, std::to_string(each.number)});
    }
    if (form.busiest_first)
        std::stable_sort(rows.begin(), rows.end(), [](const EndpointRow& a, const EndpointRow& b) {
            return activity(a.endpoint) > activity(b.endpoint);
        });
    return rows;
}

std::string rnr_text(const ProcessRates& process) {
    return process.rnr ? short_number(*process.rnr) : "-";
}

// Twice the time between two looks, and it would have been seen.
std::string age_text(double seconds) {
    if (seconds < 1) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.0f", seconds);
    return text;
}

std::vector<std::string> heading_of(const TopForm& form, bool wide) {
    std::vector<std::string> heading = {"PID", "RANK"};
    if (wide) heading.emplace_back("COMMAND");
    const auto field = [&](const provider::LiveField& each) { heading.emplace_back(each.heading); };
    switch (form.view) {
        case TopView::kMessages:
            heading.emplace_back(form.by_process ? "EPs" : "EP");
            for (const EndpointValue value : kMessages)
                field(kEndpointFields[static_cast<std::size_t>(value)]);
            break;
        case TopView::kQueues:
            heading.emplace_back(form.by_process ? "EPs" : "EP");
            for (const EndpointValue value : kQueues)
                field(kEndpointFields[static_cast<std::size_t>(value)]);
            heading.emplace_back("RNR");
            heading.emplace_back("quiet");
            break;
        case TopView::kResources:
            for (const provider::LiveField& each : kProcessFields)
                field(each);
            break;
    }
    return heading;
}

std::vector<std::string> cells_of(const EndpointRow& row, const TopForm& form, bool wide) {
    const RunningProcess& process = row.process->process;
    std::vector<std::string> cells = {std::to_string(process.pid),
                                      process.live.rank.empty() ? "-" : process.live.rank};
    if (wide) cells.push_back(process.command);
    switch (form.view) {
        case TopView::kMessages:
            cells.push_back(row.number);
            for (const EndpointValue value : kMessages)
                cells.push_back(short_number(row.endpoint.of(value)));
            break;
        case TopView::kQueues:
            cells.push_back(row.number);
            for (const EndpointValue value : kQueues)
                cells.push_back(short_number(
                    static_cast<double>(row.endpoint.values[static_cast<std::size_t>(value)])));
            cells.push_back(rnr_text(*row.process));
            cells.push_back(age_text(row.endpoint.age));
            break;
        case TopView::kResources:
            for (std::size_t i = 0; i < kProcessFields.size(); ++i)
                cells.push_back(short_number(kProcessFields[i].counter
                                                 ? row.process->rates[i]
                                                 : static_cast<double>(process.live.values[i])));
            break;
    }
    return cells;
}

const char* view_title(TopView view) {
    switch (view) {
        case TopView::kMessages:
            return "messages per second";
        case TopView::kQueues:
            return "queues; RNR NAKs per second";
        case TopView::kResources:
            return "resources; registrations per second";
    }
    return "";
}

std::string cut(const std::string& text, std::size_t columns) {
    std::string lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        HEDDLE_ASSERT(end != std::string::npos, "each line is ended");
        lines += text.substr(begin, std::min(end - begin, columns)) + "\n";
        begin = end + 1;
    }
    return lines;
}

}  // namespace

TopRates rates_between(const Running& before, const Running& now, double seconds,
                       std::uint64_t now_ns) {
    TopRates rates;
    rates.seconds = seconds;
    rates.other_versions = now.other_versions;
    rates.absent = now.absent;
    for (const RunningProcess& process : now.processes) {
        ProcessRates out;
        out.process = process;
        const RunningProcess* const then = found_in(
            before.processes, [&](const RunningProcess& p) { return p.pid == process.pid; });
        if (then != nullptr && then->live.written_ns != 0)
            add_rates(kProcessFields, then->live.values, then->live.written_ns, process.live.values,
                      process.live.written_ns, out.rates);
        if (process.rnr) {
            const bool grew = then != nullptr && then->rnr && *process.rnr > *then->rnr;
            out.rnr = grew ? static_cast<double>(*process.rnr - *then->rnr) / seconds : 0;
        }
        for (const provider::LiveEndpoint& endpoint : process.live.endpoints) {
            EndpointRates each;
            each.number = endpoint.number;
            each.values = endpoint.values;
            if (now_ns > endpoint.written_ns)
                each.age = static_cast<double>(now_ns - endpoint.written_ns) * 1e-9;
            const provider::LiveEndpoint* const earlier =
                then == nullptr
                    ? nullptr
                    : found_in(then->live.endpoints, [&](const provider::LiveEndpoint& e) {
                          return e.slot == endpoint.slot && e.number == endpoint.number;
                      });
            if (earlier != nullptr)
                add_rates(kEndpointFields, earlier->values, earlier->written_ns, endpoint.values,
                          endpoint.written_ns, each.rates);
            out.endpoints.push_back(each);
        }
        rates.processes.push_back(std::move(out));
    }
    return rates;
}

std::string top_text(const TopRates& rates, TopForm& form, std::size_t columns, std::size_t lines) {
    const std::size_t endpoints = std::accumulate(
        rates.processes.begin(), rates.processes.end(), std::size_t{0},
        [](std::size_t sum, const ProcessRates& each) { return sum + each.endpoints.size(); });
    char heading[200];
    std::snprintf(heading, sizeof heading, "heddle: %s; %zu process%s, %zu endpoint%s, %.1f s",
                  view_title(form.view), rates.processes.size(),
                  rates.processes.size() == 1 ? "" : "es", endpoints, endpoints == 1 ? "" : "s",
                  rates.seconds);
    std::string text = heading;
    if (!rates.processes.empty())
        text += "; " + rates.processes.front().process.live.device + ", " +
                rates.processes.front().process.live.category;
    text = text.substr(0, columns) + "\n\n";
    for (const AbsentProcess& each : rates.absent)
        text += "process " + std::to_string(each.pid) + ": " + each.why + "\n";
    if (rates.processes.empty() && rates.absent.empty())
        text += "no process of yours runs over heddle now\n";
    if (rates.other_versions != 0)
        text += std::to_string(rates.other_versions) + " more, over another version of heddle\n";

    const std::vector<EndpointRow> rows = rows_of(rates, form);
    if (rows.empty()) return cut(text, columns);
    const std::size_t room = top_rows(lines);
    form.first = std::min(form.first, rows.size() > room ? rows.size() - room : 0);
    const std::size_t end = std::min(rows.size(), form.first + room);
    HEDDLE_ASSERT(form.first < end && end - form.first <= room, "there are rows to show");
    const bool wide = columns > 96;
    TextTable table(heading_of(form, wide), columns > 80 ? 2 : 1);
    for (std::size_t i = form.first; i < end; ++i)
        table.add(cells_of(rows[i], form, wide));
    text += table.text();
    if (end - form.first < rows.size())
        text += "rows " + std::to_string(form.first + 1) + " to " + std::to_string(end) + " of " +
                std::to_string(rows.size()) + "\n";
    return cut(text, columns);
}

std::string top_help() {
    std::string text =
        "1 2 3, Tab   messages, queues, resources\n"
        "e            endpoints, or processes\n"
        "s            the busiest first, or by process\n"
        "p            pause\n"
        "+ -          less, more often\n"
        "up down      scroll; Page Up, Page Down, Home, End\n"
        "q            quit\n\n";
    TextTable table({"COLUMN", "WHAT"});
    for (const provider::LiveField& each : kEndpointFields)
        table.add({each.heading, each.help});
    table.add({"RNR", "times that a device had no receive for a message"});
    table.add({"quiet", "seconds since it has made progress"});
    for (const provider::LiveField& each : kProcessFields)
        table.add({each.heading, each.help});
    return text + table.text();
}

Json top_json(const TopRates& rates) {
    Json json = {{"seconds", rates.seconds}, {"other_versions", rates.other_versions}};
    if (!rates.absent.empty()) {
        Json& absent = json["absent"] = Json::array();
        for (const AbsentProcess& each : rates.absent)
            absent.push_back({{"pid", each.pid}, {"why", each.why}});
    }
    Json& processes = json["processes"] = Json::array();
    const auto put = [](Json& to, const auto& fields, const auto& values, const auto& per_second) {
        for (std::size_t i = 0; i < fields.size(); ++i) {
            to["values"][fields[i].key] = values[i];
            if (fields[i].counter) to["rates"][fields[i].key] = per_second[i];
        }
    };
    for (const ProcessRates& each : rates.processes) {
        const provider::LiveProcess& live = each.process.live;
        Json process = {{"pid", each.process.pid},
                        {"command", each.process.command},
                        {"rank", live.rank},
                        {"device", live.device},
                        {"category", live.category}};
        put(process, kProcessFields, live.values, each.rates);
        process["rnr"] = each.rnr ? Json(*each.rnr) : Json(nullptr);
        process["rnr_of"] =
            !each.rnr ? Json(nullptr) : Json(each.process.rnr_of_port ? "port" : "process");
        Json& endpoints = process["endpoints"] = Json::array();
        for (const EndpointRates& endpoint : each.endpoints) {
            Json one = {{"endpoint", endpoint.number}, {"quiet", endpoint.age}};
            put(one, kEndpointFields, endpoint.values, endpoint.rates);
            endpoints.push_back(std::move(one));
        }
        processes.push_back(std::move(process));
    }
    return json;
}

}  // namespace heddle::cli
