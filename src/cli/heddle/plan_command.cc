// SPDX-License-Identifier: BSD-2-Clause
// heddle plan: what each of the six categories takes for so many threads, on this device. The
// numbers are measured: the endpoints are made, looked at and destroyed.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/heddle/commands.h"
#include "cli/text.h"
#include "heddle/endpoint.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
    std::string device;
    std::uint32_t threads = 0, qps_per_thread = 1, processes = 1;
    std::optional<std::uint32_t> budget_uars;
    std::uint32_t depth = 128;
    bool json = false, measure = true;
};

struct Row {
    Category category;
    std::optional<Usage> usage;  // of one process; nothing: it could not be made
    std::string error;
};

const char* shared_with(Category category) {
    switch (category) {
        case Category::kMpiEverywhere:
            return "nothing; each thread has a context of its own";
        case Category::k2xDynamic:
            return "context, PD, MR; every other uUAR page stays idle";
        case Category::kDynamic:
            return "context, PD, MR";
        case Category::kSharedDynamic:
            return "context, PD, MR; a UAR page by two threads";
        case Category::kStatic:
            return "context, PD, MR; uUARs as the driver assigns them";
        case Category::kMpiThreads:
            return "all: one QP and one CQ for all threads";
    }
    return "";
}

std::vector<Row> measure(const Request& request) {
    std::vector<Row> rows;
    for (const Category category : kCategories) {
        Row row{category, std::nullopt, ""};
        try {
            EndpointOptions options;
            options.depth = request.depth;
            options.qps_per_thread = request.qps_per_thread;
            const EndpointSet set(request.device, category, request.threads, options);
            row.usage = set.usage();
        } catch (const VerbsError& error) {
            row.error = error.what();
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

bool within_budget(const Request& request, const Usage& usage) {
    return !request.budget_uars || !usage.uars ||
           *usage.uars * request.processes <= *request.budget_uars;
}

Json optional_number(const std::optional<std::uint32_t>& value, std::uint32_t times) {
    return value ? Json(*value * times) : Json(nullptr);
}

Json to_json(const Request& request, const DeviceInfo& device, const std::vector<Row>& rows) {
    Json categories = Json::array();
    for (const Row& row : rows) {
        Json j{{"category", name(row.category)}};
        if (!row.usage) {
            j["error"] = row.error;
            categories.push_back(j);
            continue;
        }
        const Usage& u = *row.usage;
        const std::uint32_t p = request.processes;
        j["contexts"] = u.contexts * p;
        j["pds"] = u.pds * p;
        j["mrs"] = u.mrs * p;
        j["thread_domains"] = u.thread_domains * p;
        j["qps"] = u.qps * p;
        j["cqs"] = u.cqs * p;
        j["uars"] = optional_number(u.uars, p);
        j["cq_uars"] = optional_number(u.cq_uars, p);
        j["uuars"] = optional_number(u.uuars, p);
        j["uuars_used"] = optional_number(u.uuars_used, p);
        j["uuars_wasted"] = optional_number(u.uuars_wasted(), p);
        j["bytes"] = u.bytes * p;
        j["fits_device"] = u.qps * p <= device.max_qps && u.cqs * p <= device.max_cqs;
        j["fits_budget"] = within_budget(request, u);
        j["shared"] = shared_with(row.category);
        categories.push_back(j);
    }
    return {{"device", device.name},          {"software", device.software},
            {"threads", request.threads},     {"qps_per_thread", request.qps_per_thread},
            {"processes", request.processes}, {"depth", request.depth},
            {"categories", categories}};
}

void print(const Request& request, const DeviceInfo& device, const std::vector<Row>& rows) {
    using softhca::cli::short_bytes;
    std::printf("%s%s: %u thread%s, %u QP%s a thread, %u process%s; measured\n\n",
                device.name.c_str(), device.software ? " (software HCA)" : "", request.threads,
                request.threads == 1 ? "" : "s", request.qps_per_thread,
                request.qps_per_thread == 1 ? "" : "s", request.processes,
                request.processes == 1 ? "" : "es");
    softhca::cli::TextTable table(
        {"category", "contexts", "QPs", "CQs", "UARs", "uUARs", "wasted", "bytes", "fits"});
    const auto number = [&](const std::optional<std::uint32_t>& value) {
        return value ? std::to_string(*value * request.processes) : std::string("-");
    };
    std::uint32_t cq_pages = 0;
    for (const Row& row : rows) {
        if (!row.usage) {
            table.add({std::string(name(row.category)), "-", "-", "-", "-", "-", "-", "-", "no"});
            continue;
        }
        const Usage& u = *row.usage;
        const std::uint32_t p = request.processes;
        const bool device_takes = u.qps * p <= device.max_qps && u.cqs * p <= device.max_cqs;
        table.add({std::string(name(row.category)), std::to_string(u.contexts * p),
                   std::to_string(u.qps * p), std::to_string(u.cqs * p), number(u.uars),
                   number(u.uuars), number(u.uuars_wasted()), short_bytes(u.bytes * p),
                   !device_takes               ? "no"
                   : within_budget(request, u) ? "yes"
                                               : "over budget"});
        cq_pages = std::max(cq_pages, u.cq_uars.value_or(0));
    }
    std::printf("%s\n", table.text().c_str());
    for (const Row& row : rows)
        if (!row.usage)
            std::printf("%s: %s\n", std::string(name(row.category)).c_str(), row.error.c_str());
    if (cq_pages != 0)
        std::printf("Besides, each context has a page for doorbells of CQs alone.\n");
    std::printf("Shared by the threads of a process:\n");
    for (const Row& row : rows)
        std::printf("  %-15s %s\n", std::string(name(row.category)).c_str(),
                    shared_with(row.category));
}

}  // namespace

void add_plan_command(CLI::App& app, int* status) {
    CLI::App* command =
        app.add_subcommand("plan", "What each category of endpoints takes for so many threads");
    auto* request = new Request;  // lives as long as the program
    command->add_option("--threads", request->threads, "threads of a process")
        ->required()
        ->check(CLI::Range(1, 65536));
    command->add_option("--qps-per-thread", request->qps_per_thread, "one for each neighbour, say")
        ->check(CLI::Range(1, 1024));
    command->add_option("--processes", request->processes, "processes on this device")
        ->check(CLI::Range(1, 65536));
    command->add_option("--budget-uars", request->budget_uars, "UARs that all may take together");
    command->add_option("--depth", request->depth, "entries of each send queue")
        ->check(CLI::Range(1, 32768));
    command->add_option("--device", request->device, "default: the first with an active port");
    command->add_flag("--measure", request->measure,
                      "make the endpoints and look at them (always done)");
    command->add_flag("--json", request->json, "as JSON");
    command->callback([request, status] {
        const DeviceInfo info = device(request->device);
        const auto rows = measure(*request);
        if (request->json)
            std::printf("%s\n", to_json(*request, info, rows).dump().c_str());
        else
            print(*request, info, rows);
        *status = 0;
        for (const Row& row : rows)
            if (!row.usage) *status = kFailed;
    });
}

}  // namespace heddle::cli
