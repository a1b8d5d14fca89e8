// SPDX-License-Identifier: BSD-2-Clause
// heddle bench: the experiments of the papers. Prints a table, and with --json one line for each
// configuration with every sample.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/heddle/commands.h"
#include "cli/text.h"
#include "common/measure.h"
#include "experiments/message_rate.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
    bench::MessageRate rate;
    std::string categories = "all", paths = "verbs";
    std::vector<std::string> shares;
    int repetitions = 11;
    bool no_inline = false, no_blueflame = false, json = false;
};

struct Row {
    std::string label;
    Path path;
    bench::MessageRateRun run;
    std::vector<double> samples;
};

// Half of what lies between the quartiles: as robust as the median it stands beside.
double spread(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    return (samples[samples.size() * 3 / 4] - samples[samples.size() / 4]) / 2;
}

[[noreturn]] void refuse(const std::string& text) { throw CLI::ValidationError(text); }

// "cq=4": CQs shared 4-way.
void apply_share(const std::string& text, Sharing* sharing) {
    const std::size_t equals = text.find('=');
    const std::string what = text.substr(0, equals);
    const int ways = equals == std::string::npos ? 0 : std::atoi(text.c_str() + equals + 1);
    std::uint32_t* const place = what == "context"  ? &sharing->context
                                 : what == "pd"     ? &sharing->pd
                                 : what == "mr"     ? &sharing->mr
                                 : what == "cq"     ? &sharing->cq
                                 : what == "qp"     ? &sharing->qp
                                 : what == "buffer" ? &sharing->buffer
                                                    : nullptr;
    if (place == nullptr || ways < 1)
        refuse("--share " + text +
               ": RESOURCE=WAYS, where RESOURCE is context, pd, mr, cq, qp or buffer");
    *place = static_cast<std::uint32_t>(ways);
}

std::vector<Row> make_rows(const Request& request) {
    std::vector<Path> paths;
    if (request.paths != "direct") paths.push_back(Path::kVerbs);
    if (request.paths != "verbs") paths.push_back(Path::kDirect);
    std::vector<Row> rows;
    for (const Category c : kCategories) {
        if (request.categories != "all" && request.categories != name(c)) continue;
        for (const Path path : paths) {
            bench::MessageRate m = request.rate;
            m.path = path;
            m.inlining = !request.no_inline;
            m.sharing = sharing_of(c, m.threads);
            for (const std::string& share : request.shares)
                apply_share(share, &m.sharing);
            rows.push_back({std::string(name(c)), path, bench::MessageRateRun(m), {}});
        }
    }
    if (rows.empty()) refuse("--category " + request.categories + ": there is no such category");
    return rows;
}

void print_json(const Request& request, const DeviceInfo& device, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
        const Usage& u = row.run.usage();
        Json j{{"experiment", "message-rate"},
               {"device", device.name},
               {"software_hca", device.software},
               {"version", HEDDLE_VERSION},
               {"category", row.label},
               {"path", row.path == Path::kVerbs ? "verbs" : "direct"},
               {"threads", request.rate.threads},
               {"cores", std::thread::hardware_concurrency()},
               {"bytes", request.rate.bytes},
               {"depth", request.rate.depth},
               {"post_list", request.rate.post_list},
               {"signal_every", request.rate.signal_every},
               {"inlining", !request.no_inline},
               {"blueflame", !request.no_blueflame},
               {"share", request.shares},
               {"mmsgs_per_s", bench::median(row.samples)},
               {"spread", spread(row.samples)},
               {"samples", row.samples},
               {"qps", u.qps},
               {"cqs", u.cqs},
               {"uars", u.uars ? Json(*u.uars) : Json(nullptr)}};
        std::printf("%s\n", j.dump().c_str());
    }
}

void print_table(const Request& request, const DeviceInfo& device, const std::vector<Row>& rows) {
    std::printf(
        "%s%s: %u thread%s on %u core%s, %u B, depth %u, lists of %u, a completion for %u; median "
        "of %d\n\n",
        device.name.c_str(), device.software ? " (software HCA)" : "", request.rate.threads,
        request.rate.threads == 1 ? "" : "s", std::thread::hardware_concurrency(),
        std::thread::hardware_concurrency() == 1 ? "" : "s", request.rate.bytes, request.rate.depth,
        request.rate.post_list, request.rate.signal_every, request.repetitions);
    softhca::cli::TextTable table({"category", "path", "Mmsg/s", "+-", "QPs", "CQs", "UARs"});
    const auto number = [](double value) {
        char text[32];
        std::snprintf(text, sizeof text, "%.2f", value);
        return std::string(text);
    };
    for (const Row& row : rows) {
        const Usage& u = row.run.usage();
        table.add({row.label, row.path == Path::kVerbs ? "verbs" : "direct",
                   number(bench::median(row.samples)), number(spread(row.samples)),
                   std::to_string(u.qps), std::to_string(u.cqs),
                   u.uars ? std::to_string(*u.uars) : "-"});
    }
    std::printf("%s", table.text().c_str());
    if (request.rate.threads > std::thread::hardware_concurrency())
        std::printf("\nMore threads than cores: they take turns.\n");
}

void message_rate(const Request& request) {
    if (request.no_blueflame) ::setenv("MLX5_SHUT_UP_BF", "1", 1);  // before any device is open
    const DeviceInfo info = device(request.rate.device);
    std::vector<Row> rows = make_rows(request);
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    for (Row& row : rows)
        row.run.repeat();  // warm-up
    for (int r = 0; r < request.repetitions; ++r) {
        if (terminal) std::fprintf(stderr, "\rrepetition %d of %d", r + 1, request.repetitions);
        for (Row& row : rows)
            row.samples.push_back(row.run.repeat());
    }
    if (terminal) std::fprintf(stderr, "\r%*s\r", 40, "");
    if (request.json)
        print_json(request, info, rows);
    else
        print_table(request, info, rows);
}

}  // namespace

void add_bench_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand("bench", "Experiments of the papers");
    command->require_subcommand(1);
    add_kernel_commands(*command, status);
    CLI::App* rate = command->add_subcommand(
        "message-rate", "Small RDMA writes of n threads, each on its endpoint (ICPADS'18)");
    auto* request = new Request;  // lives as long as the program
    rate->add_option("--threads", request->rate.threads, "how many")->check(CLI::Range(1, 1024));
    rate->add_option("--category", request->categories, "all, or one: see `heddle plan`");
    rate->add_option("--path", request->paths, "verbs, direct or both")
        ->check(CLI::IsMember({"verbs", "direct", "both"}));
    rate->add_option("--share", request->shares,
                     "RESOURCE=WAYS: context, pd, mr, cq, qp or buffer shared by so many threads, "
                     "whatever the category; may be repeated");
    rate->add_option("--depth", request->rate.depth, "of the send queue")
        ->check(CLI::Range(1, 32768));
    rate->add_option("--post-list", request->rate.post_list, "works handed over with one doorbell")
        ->check(CLI::Range(1, 1024));
    rate->add_option("--signal-every", request->rate.signal_every, "works to a completion")
        ->check(CLI::Range(1, 32768));
    rate->add_option("--bytes", request->rate.bytes, "of a message")->check(CLI::Range(1, 1 << 20));
    rate->add_flag("--no-inline", request->no_inline, "the device fetches the payload");
    rate->add_flag("--no-blueflame", request->no_blueflame, "doorbells only");
    rate->add_option("--repetitions", request->repetitions, "interleaved; the median counts")
        ->check(CLI::Range(1, 10000));
    rate->add_option("--seconds", request->rate.seconds, "of a repetition")
        ->check(CLI::Range(0.001, 3600.0));
    rate->add_option("--device", request->rate.device, "default: the first with an active port");
    rate->add_flag("--json", request->json, "a JSON line for each configuration");
    rate->callback([request, status] {
        message_rate(*request);
        *status = 0;
    });
}

}  // namespace heddle::cli
