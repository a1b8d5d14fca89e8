// SPDX-License-Identifier: BSD-2-Clause
// Snapshots as text and as JSON.
#include "cli/softhca/stat_view.h"

#include <algorithm>
#include <cstdio>

#include "cli/common/text.h"
#include "softhca/base/assert.h"
#include "softhca/device/identity.h"

namespace softhca::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string hexadecimal(std::uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%x", value);
    return text;
}

std::string duration(std::uint64_t nanoseconds) {
    const std::uint64_t seconds = nanoseconds / 1'000'000'000u;
    if (seconds < 60) return number(seconds) + " s";
    if (seconds < 3600) return number(seconds / 60) + " min";
    return number(seconds / 3600) + " h " + number(seconds % 3600 / 60) + " min";
}

std::string plural(std::size_t count, const std::string& one, const std::string& many) {
    return number(count) + " " + (count == 1 ? one : many);
}

void append(std::vector<std::string>* row, const view::CounterValues& counters) {
    for (const view::CounterField& field : view::kCounterFields)
        row->push_back(number(counters.*field.value));
}

std::vector<std::string> with_counters(std::vector<std::string> heading) {
    for (const view::CounterField& field : view::kCounterFields)
        heading.emplace_back(field.heading);
    return heading;
}

// A table under a title, or nothing if it has no rows.
void append(std::string* text, const std::string& title, const cli_common::TextTable& table) {
    if (!table.empty()) *text += "\n" + title + "\n" + table.text();
}

std::string owner_name(int pid) { return pid == 0 ? "-" : number(static_cast<unsigned>(pid)); }

Json json_of(const view::CounterValues& counters) {
    Json json;
    for (const view::CounterField& field : view::kCounterFields)
        json[field.key] = counters.*field.value;
    return json;
}

}  // namespace

std::string stat_text(const view::Snapshot& snapshot) {
    std::string text = "fabric " + snapshot.fabric + ": " +
                       plural(snapshot.processes.size(), "process", "processes") + ", up " +
                       duration(snapshot.age_ns) + "\n";

    cli_common::TextTable processes({"PID", "COMMAND", "CTX", "PD", "MR", "QP", "CQ", "SRQ", "XRCD",
                                     "UAR", "uUAR", "QUEUES", "SHARED", "PINNED"});
    for (const view::ProcessUse& use : snapshot.processes)
        processes.add({number(static_cast<unsigned>(use.pid)),
                       cli_common::printable(use.command, 16) + (use.alive ? "" : " (dead)"),
                       number(use.contexts), number(use.pds), number(use.mrs), number(use.qps),
                       number(use.cqs), number(use.srqs), number(use.xrcds), number(use.uar_pages),
                       number(use.uuars), cli_common::short_bytes(use.queue_bytes),
                       cli_common::short_bytes(use.shared_bytes),
                       cli_common::short_bytes(use.pinned_bytes)});
    append(&text, "objects by process", processes);

    cli_common::TextTable contexts(with_counters({"CONTEXT", "PID", "UARs", "QPs", "CQs"}));
    for (const view::ContextUse& use : snapshot.contexts) {
        std::vector<std::string> row = {number(use.index), owner_name(use.pid),
                                        number(use.uar_pages) + (use.static_uars ? "s" : "d"),
                                        number(use.qps), number(use.cqs)};
        append(&row, use.counters);
        contexts.add(row);
    }
    append(&text, "counters by context (UARs: s static, d dynamic)", contexts);

    cli_common::TextTable qps(with_counters({"QP", "PID", "TYPE", "STATE", "PEER", "uUAR"}));
    for (const view::QpUse& use : snapshot.qps) {
        std::vector<std::string> row = {
            hexadecimal(use.number),
            owner_name(use.pid),
            use.type,
            use.state,
            use.remote_number == 0 ? "-" : hexadecimal(use.remote_number),
            use.uar_page == 0 ? "-" : number(use.uar_page) + "." + number(use.uuar)};
        append(&row, use.counters);
        qps.add(row);
    }
    append(&text, "counters by queue pair", qps);

    // A CQ writes and does nothing else; an SRQ is only read.
    cli_common::TextTable cqs({"CQ", "PID", "CQEs", "SIZE", "wr CQE", "wr data"});
    for (const view::CqUse& use : snapshot.cqs) {
        cqs.add({hexadecimal(use.number), owner_name(use.pid),
                 number(use.entries) + (use.overrun ? " overrun" : ""), number(use.entry_bytes),
                 number(use.counters.dma_write_cqe), number(use.counters.dma_write_payload)});
    }
    append(&text, "counters by completion queue", cqs);

    cli_common::TextTable srqs({"SRQ", "PID", "TYPE", "WRs", "LIMIT", "rd WQE"});
    for (const view::SrqUse& use : snapshot.srqs) {
        srqs.add({hexadecimal(use.number), owner_name(use.pid), use.type, number(use.wr),
                  number(use.limit), number(use.counters.dma_read_wqe)});
    }
    append(&text, "counters by shared receive queue", srqs);

    cli_common::TextTable connections({"ID", "PID", "SPACE", "STATE", "SOURCE", "DESTINATION"});
    const auto or_none = [](const std::string& address) { return address.empty() ? "-" : address; };
    for (const view::ConnectionUse& use : snapshot.connections)
        connections.add({number(use.number), owner_name(use.pid), use.space, use.state,
                         or_none(use.source), or_none(use.destination)});
    append(&text, "connections of rdma_cm", connections);
    return text;
}

Json stat_json(const view::Snapshot& snapshot) {
    Json json = {{"fabric", snapshot.fabric},
                 {"age_seconds", static_cast<double>(snapshot.age_ns) * 1e-9}};
    Json& processes = json["processes"] = Json::array();
    for (const view::ProcessUse& use : snapshot.processes)
        processes.push_back({{"pid", use.pid},
                             {"command", use.command},
                             {"alive", use.alive},
                             {"contexts", use.contexts},
                             {"pds", use.pds},
                             {"mrs", use.mrs},
                             {"dms", use.dms},
                             {"qps", use.qps},
                             {"cqs", use.cqs},
                             {"srqs", use.srqs},
                             {"xrcds", use.xrcds},
                             {"channels", use.channels},
                             {"uar_pages", use.uar_pages},
                             {"uuars", use.uuars},
                             {"mr_bytes", use.mr_bytes},
                             {"dm_bytes", use.dm_bytes},
                             {"queue_bytes", use.queue_bytes},
                             {"shared_bytes", use.shared_bytes},
                             {"pinned_bytes", use.pinned_bytes},
                             {"counters", json_of(use.counters)}});
    Json& contexts = json["contexts"] = Json::array();
    for (const view::ContextUse& use : snapshot.contexts)
        contexts.push_back({{"context", use.index},
                            {"pid", use.pid},
                            {"device", device::device_name(use.device).c_str()},
                            {"uar", use.static_uars ? "static" : "dynamic"},
                            {"uar_pages", use.uar_pages},
                            {"uuars", use.uuars},
                            {"qps", use.qps},
                            {"cqs", use.cqs},
                            {"srqs", use.srqs},
                            {"counters", json_of(use.counters)}});
    Json& qps = json["qps"] = Json::array();
    for (const view::QpUse& use : snapshot.qps)
        qps.push_back({{"qp", use.number},
                       {"context", use.context},
                       {"pid", use.pid},
                       {"type", use.type},
                       {"state", use.state},
                       {"remote_qp", use.remote_number},
                       {"max_send_wr", use.send_wr},
                       {"max_recv_wr", use.receive_wr},
                       {"uar_page", use.uar_page},
                       {"uuar", use.uuar},
                       {"blueflame", use.blueflame},
                       {"counters", json_of(use.counters)}});
    Json& cqs = json["cqs"] = Json::array();
    for (const view::CqUse& use : snapshot.cqs)
        cqs.push_back({{"cq", use.number},
                       {"context", use.context},
                       {"pid", use.pid},
                       {"cqes", use.entries},
                       {"cqe_bytes", use.entry_bytes},
                       {"overrun", use.overrun},
                       {"counters", json_of(use.counters)}});
    Json& srqs = json["srqs"] = Json::array();
    for (const view::SrqUse& use : snapshot.srqs)
        srqs.push_back({{"srq", use.number},
                        {"context", use.context},
                        {"pid", use.pid},
                        {"type", use.type},
                        {"max_wr", use.wr},
                        {"limit", use.limit},
                        {"counters", json_of(use.counters)}});
    Json& connections = json["connections"] = Json::array();
    for (const view::ConnectionUse& use : snapshot.connections)
        connections.push_back({{"id", use.number},
                               {"pid", use.pid},
                               {"space", use.space},
                               {"state", use.state},
                               {"source", use.source},
                               {"destination", use.destination}});
    return json;
}

Rates rates_between(const view::Snapshot& earlier, const view::Snapshot& later, double seconds) {
    SOFTHCA_ASSERT(seconds >= 0, "the later snapshot is taken later");
    Rates rates;
    rates.fabric = later.fabric;
    rates.seconds = seconds;
    rates.total.command = "all";
    for (const view::ProcessUse& now : later.processes) {
        view::CounterValues difference = now.counters;
        for (const view::ProcessUse& then : earlier.processes)
            if (then.slot == now.slot && then.generation == now.generation)
                difference = now.counters.since(then.counters);
        ProcessRates process;
        process.pid = now.pid;
        process.command = now.command;
        for (std::size_t i = 0; i < std::size(view::kCounterFields); ++i) {
            process.rate[i] = static_cast<double>(difference.*view::kCounterFields[i].value) /
                              std::max(seconds, 1e-9);
            SOFTHCA_ASSERT(process.rate[i] >= 0, "since() has no counter that goes back");
            rates.total.rate[i] += process.rate[i];
        }
        rates.processes.push_back(process);
    }
    std::stable_sort(rates.processes.begin(), rates.processes.end(),
                     [](const ProcessRates& a, const ProcessRates& b) {
                         const auto activity = [](const ProcessRates& process) {
                             double sum = 0;
                             for (const double rate : process.rate)
                                 sum += rate;
                             return sum;
                         };
                         return activity(a) > activity(b);
                     });
    return rates;
}

std::string top_text(const Rates& rates, std::size_t columns, std::size_t lines) {
    char heading[160];
    std::snprintf(heading, sizeof heading, "fabric %s: %s, per second over %.1f s",
                  rates.fabric.c_str(),
                  plural(rates.processes.size(), "process", "processes").c_str(), rates.seconds);
    std::string text = std::string(heading).substr(0, columns) + "\n\n";

    // A screen of 80 columns has no room for the last counter.
    const bool is_wide = columns > 90;
    const std::size_t shown = std::size(view::kCounterFields) - (is_wide ? 0 : 1);
    std::vector<std::string> heading_row = {"PID",   "COMMAND", "DOORB", "BLUEF", "WQEs",  "RdWQE",
                                            "RdDat", "WrDat",   "CQEs",  "RNR",   "RETRY", "BYTES"};
    if (is_wide) heading_row.emplace_back("RESENT");
    cli_common::TextTable table(std::move(heading_row), is_wide ? 2 : 1);
    const auto add = [&](const ProcessRates& process) {
        std::vector<std::string> row = {
            process.pid == 0 ? "-" : number(static_cast<unsigned>(process.pid)),
            cli_common::printable(process.command, columns > 80 ? 15 : 10)};
        for (std::size_t i = 0; i < shown; ++i)
            row.push_back(cli_common::short_number(process.rate[i]));
        table.add(row);
    };
    if (rates.processes.size() > 1) add(rates.total);
    const std::size_t room = lines > 5 ? lines - 5 : 1;
    for (std::size_t i = 0; i < rates.processes.size() && i < room; ++i)
        add(rates.processes[i]);

    const std::string body = table.text();
    for (std::size_t begin = 0; begin < body.size();) {
        const std::size_t end = body.find('\n', begin);
        SOFTHCA_ASSERT(end != std::string::npos, "each line of a table is ended");
        text += body.substr(begin, std::min(end - begin, columns)) + "\n";
        begin = end + 1;
    }
    if (rates.processes.size() > room)
        text += "and " + number(rates.processes.size() - room) + " more\n";
    return text;
}

Json top_json(const Rates& rates) {
    const auto of = [](const ProcessRates& process) {
        Json json;
        for (std::size_t i = 0; i < std::size(view::kCounterFields); ++i)
            json[view::kCounterFields[i].key] = process.rate[i];
        return json;
    };
    Json json = {{"fabric", rates.fabric}, {"seconds", rates.seconds}, {"total", of(rates.total)}};
    Json& processes = json["processes"] = Json::array();
    for (const ProcessRates& process : rates.processes)
        processes.push_back(
            {{"pid", process.pid}, {"command", process.command}, {"rates", of(process)}});
    return json;
}

}  // namespace softhca::cli
