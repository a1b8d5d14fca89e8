// SPDX-License-Identifier: BSD-2-Clause
// heddle plan: what each of the six categories takes for so many threads, on this device. The
// numbers are measured: the endpoints are made, looked at and destroyed.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/other_kernel.h"
#include "cli/heddle/paper_resources.h"
#include "cli/heddle/plan_rates.h"
#include "cli/heddle/predict_kernels.h"
#include "cli/heddle/uuar_threads.h"
#include "heddle/detail/assert.h"
#include "heddle/endpoint.h"
#include "predict/machine_file.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanRequest {
    std::string device;
    std::uint32_t threads = 0, qps_per_thread = 1, processes = 1;
    std::optional<std::uint32_t> budget_uars;
    std::uint32_t depth = 128;
    std::string kernels = "this";
    bool json = false, measure = true, rates = false;
    RatesRequest rates_of;
};

struct PlanRow {
    Category category;
    std::optional<Usage> usage;  // of one process; nothing: it could not be made
    std::optional<UuarThreads> registers;
    std::string error;
};

const char* kernel_name(std::optional<UarKernel> kernel) {
    if (!kernel) return "unknown";
    return *kernel == UarKernel::kStatic ? "static" : "dynamic";
}

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

std::vector<PlanRow> measure(const PlanRequest& request) {
    std::vector<PlanRow> rows;
    for (const Category category : kCategories) {
        PlanRow row{category, std::nullopt, std::nullopt, ""};
        try {
            EndpointOptions options;
            options.depth = request.depth;
            options.qps_per_thread = request.qps_per_thread;
            const EndpointSet set(request.device, category, request.threads, options);
            HEDDLE_ASSERT(set.size() == request.threads, "each thread has an endpoint");
            row.usage = set.usage();
            row.registers = uuar_threads(set);
        } catch (const VerbsError& error) {
            row.error = error.what();
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

// What of the device's limits the processes together would go beyond: "QPs (131072 of 65472)", or
// empty. How many UARs a device has no driver tells: a budget stands for them.
std::string beyond_device(const PlanRequest& request, const DeviceInfo& device, const Usage& u) {
    HEDDLE_ASSERT(request.processes != 0, "--processes has a least value");
    const struct {
        const char* what;
        std::uint32_t each, limit;
    } all[] = {{"QPs", u.qps, device.max_qps},
               {"CQs", u.cqs, device.max_cqs},
               {"MRs", u.mrs, device.max_mrs},
               {"PDs", u.pds, device.max_pds}};
    std::string text;
    for (const auto& [what, each, limit] : all) {
        const std::uint64_t wanted = std::uint64_t{each} * request.processes;
        if (wanted <= limit) continue;
        text += (text.empty() ? "" : ", ") + std::string(what) + " (" + std::to_string(wanted) +
                " of " + std::to_string(limit) + ")";
    }
    return text;
}

bool within_budget(const PlanRequest& request, const Usage& usage) {
    return !request.budget_uars || !usage.uars ||
           std::uint64_t{*usage.uars} * request.processes <= *request.budget_uars;
}

Json optional_number(const std::optional<std::uint32_t>& value, std::uint64_t times) {
    return value ? Json(*value * times) : Json(nullptr);
}

Json to_json(const PlanRequest& request, const DeviceInfo& device,
             const std::vector<PlanRow>& rows) {
    Json categories = Json::array();
    for (const PlanRow& row : rows) {
        Json j{{"category", name(row.category)}};
        HEDDLE_ASSERT(row.usage.has_value() == row.error.empty(), "what failed says why");
        if (!row.usage) {
            j["error"] = row.error;
            categories.push_back(j);
            continue;
        }
        const Usage& u = *row.usage;
        const std::uint64_t p = request.processes;
        j["contexts"] = u.contexts * p;
        j["pds"] = u.pds * p;
        j["mrs"] = u.mrs * p;
        j["thread_domains"] = u.thread_domains * p;
        j["qps"] = u.qps * p;
        j["cqs"] = u.cqs * p;
        j["uars"] = optional_number(u.uars, p);
        j["uars_by_icpads18"] =
            paper_uars(row.category, request.threads, request.threads * request.qps_per_thread) * p;
        j["cq_uars"] = optional_number(u.cq_uars, p);
        j["uuars"] = optional_number(u.uuars, p);
        j["uuars_used"] = optional_number(u.uuars_used, p);
        j["uuars_wasted"] = optional_number(u.uuars_wasted(), p);
        j["bytes"] = u.bytes * p;
        j["bytes_by_table_1_of_icpads18"] = paper_bytes(u) * p;
        const std::string beyond = beyond_device(request, device, u);
        j["fits_device"] = beyond.empty();
        if (!beyond.empty()) j["beyond_device"] = beyond;
        j["fits_budget"] = within_budget(request, u);
        j["made_as"] = name(made_on(device, row.category));
        j["shared"] = shared_with(made_on(device, row.category));
        // of each process, from 0
        j["uuar_threads"] = row.registers ? Json(row.registers->uuars) : Json(nullptr);
        j["uar_threads"] = row.registers ? Json(row.registers->pages) : Json(nullptr);
        categories.push_back(j);
    }
    const auto kernel = uar_kernel(device.name);
    return {{"device", device.name},
            {"software", device.software},
            {"uar_kernel", kernel ? Json(kernel_name(kernel)) : Json(nullptr)},
            {"threads", request.threads},
            {"qps_per_thread", request.qps_per_thread},
            {"processes", request.processes},
            {"depth", request.depth},
            {"categories", categories}};
}

void print(const PlanRequest& request, const DeviceInfo& device, const std::vector<PlanRow>& rows) {
    using cli_common::short_bytes;
    std::printf("%s%s, %s UAR kernel: %u thread%s, %u QP%s a thread, %u process%s; measured\n\n",
                device.name.c_str(), device.software ? " (software HCA)" : "",
                kernel_name(uar_kernel(device.name)), request.threads,
                request.threads == 1 ? "" : "s", request.qps_per_thread,
                request.qps_per_thread == 1 ? "" : "s", request.processes,
                request.processes == 1 ? "" : "es");
    cli_common::TextTable table({"category", "contexts", "QPs", "CQs", "UARs", "uUARs", "wasted",
                                 "bytes", "(paper)", "fits"});
    const auto number = [&](const std::optional<std::uint32_t>& value) {
        return value ? std::to_string(std::uint64_t{*value} * request.processes) : std::string("-");
    };
    std::uint32_t cq_pages = 0;
    for (const PlanRow& row : rows) {
        if (!row.usage) {
            table.add(
                {std::string(name(row.category)), "-", "-", "-", "-", "-", "-", "-", "-", "no"});
            continue;
        }
        const Usage& u = *row.usage;
        const std::uint64_t p = request.processes;
        const bool device_takes = beyond_device(request, device, u).empty();
        table.add({std::string(name(row.category)), std::to_string(u.contexts * p),
                   std::to_string(u.qps * p), std::to_string(u.cqs * p), number(u.uars),
                   number(u.uuars), number(u.uuars_wasted()), short_bytes(u.bytes * p),
                   short_bytes(paper_bytes(u) * p),
                   !device_takes               ? "no"
                   : within_budget(request, u) ? "yes"
                                               : "over budget"});
        cq_pages = std::max(cq_pages, u.cq_uars.value_or(0));
    }
    std::printf("%s\n", table.text().c_str());
    for (const PlanRow& row : rows) {
        const std::string beyond =
            row.usage ? beyond_device(request, device, *row.usage) : std::string();
        if (!row.usage)
            std::printf("%s: %s\n", std::string(name(row.category)).c_str(), row.error.c_str());
        else if (!beyond.empty())
            std::printf("%s: more than the device has of %s\n",
                        std::string(name(row.category)).c_str(), beyond.c_str());
    }
    if (request.budget_uars) std::printf("Budget: %u UARs.\n", *request.budget_uars);
    std::printf("(paper): bytes of the same objects by table I of ICPADS'18.\n");
    if (cq_pages != 0)
        std::printf("Besides, each context has a page for doorbells of CQs alone.\n");
    if (!device.thread_domains)
        std::printf(
            "2xdynamic, dynamic and shared-dynamic: made as static, since the driver has no thread "
            "domains.\n");
    std::printf("Shared by the threads of a process:\n");
    for (const PlanRow& row : rows) {
        std::printf("  %-15s %s\n", std::string(name(row.category)).c_str(),
                    shared_with(made_on(device, row.category)));
        if (!row.registers) continue;
        const std::string uuars = text_of(row.registers->uuars);
        const std::string pages = text_of(row.registers->pages);
        if (!uuars.empty()) std::printf("  %-15s uUARs by threads %s\n", "", uuars.c_str());
        if (!pages.empty() && pages != uuars)
            std::printf("  %-15s UAR pages by threads %s\n", "", pages.c_str());
    }
}

std::optional<PlanRates> rates_of(const PlanRequest& request, const DeviceInfo& device,
                                  const std::vector<PlanRow>& rows) {
    if (!request.rates) return std::nullopt;
    std::vector<MadeCategory> made;
    for (const PlanRow& row : rows) {
        if (!row.usage) continue;
        made.push_back({row.category, made_on(device, row.category), row.usage->uars,
                        beyond_device(request, device, *row.usage).empty() &&
                            within_budget(request, *row.usage)});
    }
    return predict_rates(request.rates_of, made, request.threads, request.processes,
                         request.qps_per_thread, request.depth);
}

std::vector<std::string> arguments_of(const PlanRequest& r) {
    std::vector<std::string> all{"plan"};
    const auto add = [&](const char* option, const std::string& value) {
        all.insert(all.end(), {option, value});
    };
    add("--threads", std::to_string(r.threads));
    add("--qps-per-thread", std::to_string(r.qps_per_thread));
    add("--processes", std::to_string(r.processes));
    add("--depth", std::to_string(r.depth));
    if (!r.device.empty()) add("--device", r.device);
    if (r.budget_uars) add("--budget-uars", std::to_string(*r.budget_uars));
    if (r.json) all.emplace_back("--json");
    return all;
}

}  // namespace

void add_plan_command(CLI::App& app, int* status) {
    CLI::App* command =
        app.add_subcommand("plan", "What each category of endpoints takes for so many threads");
    auto* request = new PlanRequest;  // lives as long as the program
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
    command
        ->add_option("--kernels", request->kernels,
                     "this: the UAR kernel that is running; both: on the software HCA the other "
                     "one, too, by a second run of this command")
        ->check(CLI::IsMember({"this", "both"}));
    CLI::Option* const rates =
        command->add_flag("--rates", request->rates,
                          "what each category would gain on a real adapter (heddle predict)");
    add_kernel_option(*command, request->rates_of.kernel)->needs(rates);
    command
        ->add_option("--at-least", request->rates_of.at_least,
                     "% of the rate of mpi-everywhere that the recommended category keeps")
        ->needs(rates)
        ->check(CLI::Range(1, 100));
    add_machine_option(*command, request->rates_of.machine)->needs(rates);
    command->add_flag("--json", request->json, "as JSON");
    command->callback([request, status] {
        const DeviceInfo info = device(request->device);
        const auto rows = measure(*request);
        std::optional<PlanRates> rates;
        try {
            rates = rates_of(*request, info, rows);
        } catch (const std::invalid_argument& error) {
            throw CLI::ValidationError(error.what());
        } catch (const predict::MachineFileError& error) {
            std::fprintf(stderr, "heddle plan: %s\n", error.what());
            *status = kFailed;
            return;
        }
        OtherKernel other;
        if (request->kernels == "both")
            other = run_under_other_kernel(info, arguments_of(*request));
        if (request->json) {
            Json all = to_json(*request, info, rows);
            if (rates) all["rates"] = to_json(*rates);
            if (request->kernels == "both") {
                all["other_kernel"] =
                    other.output.empty() ? Json(nullptr) : Json::parse(other.output);
                if (!other.why_not.empty()) all["other_kernel_missing"] = other.why_not;
            }
            std::printf("%s\n", all.dump().c_str());
        } else {
            print(*request, info, rows);
            if (rates) print(*rates);
            if (request->kernels == "both")
                std::printf("\n%s%s", other.output.c_str(), other.why_not.c_str());
        }
        *status = other.status;
        for (const PlanRow& row : rows)
            if (!row.usage) *status = kFailed;
    });
}

}  // namespace heddle::cli
