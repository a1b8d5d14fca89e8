// SPDX-License-Identifier: BSD-2-Clause
// heddle calibrate: what registering and copying small buffers costs on this host and device, and
// how often a buffer must be used until its registration has paid; beside the paper's Table 2. And
// what posting takes by libibverbs and directly.
// Measures anew, and keeps it for the programs of this user.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/machine_command.h"
#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "heddle/error.h"
#include "protocol/reuse/post_costs.h"
#include "protocol/reuse/reuse_costs.h"
#include "protocol/reuse/reuse_rounds.h"
#include "verbs/open_device.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
using protocol::PostCosts;
using protocol::ReuseCosts;
using protocol::ReuseRounds;

constexpr std::size_t kRounds = 5;

struct CalibrateRequest {
    std::string device, machine;
    bool show = false, json = false;
};

constexpr const char* kChannels[ReuseCosts::kWays] = {"send", "ring", "one-sided"};

// "Exploiting application buffer reuse", Table 2: MVAPICH2 1.0.3 on ConnectX DDR. -1: not given.
struct OfPaper {
    std::size_t bytes;
    int uses[ReuseCosts::kWays];
};
constexpr OfPaper kPaper[] = {
    {512, {1568, 432, 196}}, {1024, {448, 200, 128}},
    {2048, {224, 110, 128}}, {4096, {95, 60, 56}},  // of 1, 2, ... 8 KB: the second, fourth, eighth
    {8192, {49, 32, 25}},
};

std::string number(double value) {
    if (!(value > 0) || !std::isfinite(value)) return "never";
    char text[32];
    std::snprintf(text, sizeof text, "%.0f", std::ceil(value));
    return text;
}

void print_posts(const PostCosts& posts, const std::string& file) {
    std::printf(
        "\nFrom the post to the completion, ns, on queue pairs in turns\n\n"
        "%12s %8s %8s %8s %14s\n",
        "queue pairs", "bytes", "verbs", "direct", "direct / verbs");
    for (std::size_t i = 0; i < posts.costs.size(); ++i)
        std::printf("%12u %8zu %8.0f %8.0f %14.2f\n", PostCosts::queue_pairs_of(i),
                    PostCosts::size_of(i), posts.costs[i].verbs, posts.costs[i].direct,
                    posts.costs[i].direct / posts.costs[i].verbs);
    std::printf("\nFI_HEDDLE_POST=auto is %s\n", posts.direct_pays() ? "direct" : "verbs");
    if (!file.empty()) std::printf("Kept in %s\n", file.c_str());
}

void print(const ReuseCosts& costs, const DeviceInfo& device, const std::string& file) {
    std::printf("%s%s: uses of a buffer until its registration has paid\n\n", device.name.c_str(),
                device.software ? " (software HCA)" : "");
    std::printf("%8s %12s %8s %9s", "bytes", "register us", "copy ns", "look-up");
    for (const char* way : kChannels)
        std::printf("  %16s", (std::string(way) + " saves").c_str());
    for (const char* way : kChannels)
        std::printf(" %10s", way);
    std::printf("   paper: send ring one-sided\n");
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        const ReuseCosts::Cost& cost = costs.costs[i];
        if (cost.registration <= 0) continue;
        std::printf("%8zu %12.2f %8.0f %6.1f ns", ReuseCosts::size_of(i), cost.registration / 1000,
                    cost.copy, cost.lookup);
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way)
            std::printf("  %7.0f of %5.0f", cost.saved(static_cast<ReuseCosts::Way>(way)),
                        cost.copied[way]);
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way)
            std::printf(" %10s", number(cost.uses(static_cast<ReuseCosts::Way>(way))).c_str());
        for (const OfPaper& each : kPaper)
            if (each.bytes == ReuseCosts::size_of(i))
                std::printf("   %11d %4d %9d", each.uses[0], each.uses[1], each.uses[2]);
        std::printf("\n");
    }
    std::printf(
        "\nsaves: ns that an operation takes less from its post to its completion without the "
        "copy, of\nthe time with it. never: the copy costs less than what the device does "
        "instead, or less\nthan %.0f %% are saved.\n",
        100 * ReuseCosts::kLeastShare);
    if (!file.empty()) std::printf("Kept in %s\n", file.c_str());
}

// The least and the most of a number in all rounds; uses() of 0 are "never", which is the most.
template <class Number>
std::pair<double, double> spread(const ReuseRounds& rounds, const Number& of) {
    std::vector<double> values;
    for (const ReuseCosts& each : rounds.rounds)
        values.push_back(of(each));
    HEDDLE_ASSERT(!values.empty(), "something was measured");
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return {*least, *most};
}

std::pair<double, double> spread_of_uses(const ReuseRounds& rounds, std::size_t index,
                                         std::size_t way) {
    return spread(rounds, [&](const ReuseCosts& each) {
        const double uses = each.costs[index].uses(static_cast<ReuseCosts::Way>(way));
        return uses > 0 ? uses : std::numeric_limits<double>::infinity();
    });
}

std::pair<double, double> spread_of_registration(const ReuseRounds& rounds, std::size_t index) {
    return spread(rounds, [&](const ReuseCosts& each) { return each.costs[index].registration; });
}

void print_spread(const ReuseRounds& rounds) {
    std::printf("\nIn %zu rounds\n\n%8s %18s", rounds.rounds.size(), "bytes", "register us");
    for (const char* way : kChannels)
        std::printf(" %18s", (std::string(way) + ", uses").c_str());
    std::printf("\n");
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        if (rounds.rounds.front().costs[i].registration <= 0) continue;
        const auto [least, most] = spread_of_registration(rounds, i);
        char text[64];
        std::snprintf(text, sizeof text, "%.1f to %.1f", least / 1000, most / 1000);
        std::printf("%8zu %18s", ReuseCosts::size_of(i), text);
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
            const auto [fewest, many] = spread_of_uses(rounds, i, way);
            std::printf(" %18s", (number(fewest) + " to " + number(many)).c_str());
        }
        std::printf("\n");
    }
    std::printf(
        "\nWhere less than %.0f %% of the rounds speak for a change between never and a number, a "
        "size keeps\nthe costs of before.\n",
        100 * ReuseRounds::kAgreed);
}

Json json_of(const ReuseRounds& rounds) {
    const auto uses = [](double value) {
        return std::isfinite(value) ? Json(std::ceil(value)) : Json(nullptr);
    };
    Json sizes = Json::array();
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        if (rounds.rounds.front().costs[i].registration <= 0) continue;
        const auto [least, most] = spread_of_registration(rounds, i);
        Json channels;
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
            const auto [fewest, many] = spread_of_uses(rounds, i, way);
            channels[kChannels[way]] = {
                {"rounds_that_pay", rounds.paying(i, static_cast<ReuseCosts::Way>(way))},
                {"uses", {uses(fewest), uses(many)}}};
        }
        sizes.push_back({{"bytes", ReuseCosts::size_of(i)},
                         {"registration_ns", {least, most}},
                         {"ways", channels}});
    }
    return {{"rounds", rounds.rounds.size()}, {"sizes", sizes}};
}

// "from 4096 bytes after 63 uses" of a way; empty: never.
std::string paying(const ReuseCosts& costs, ReuseCosts::Way way) {
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i)
        if (costs.costs[i].pays(way))
            return "from " + std::to_string(ReuseCosts::size_of(i)) + " bytes after " +
                   number(costs.costs[i].uses(way)) + " uses";
    return {};
}

// Mean saving of the direct path, in percent; negative: it takes longer.
double saved_by_direct(const PostCosts& posts) {
    double sum = 0;
    for (const PostCosts::Cost& cost : posts.costs) {
        HEDDLE_ASSERT(cost.verbs > 0 && cost.direct > 0, "both paths were measured");
        sum += 1 - cost.direct / cost.verbs;
    }
    return 100 * sum / static_cast<double>(posts.costs.size());
}

std::string conclusion(const ReuseCosts& costs, const std::optional<PostCosts>& posts,
                       const DeviceInfo& device) {
    std::string pays, never;
    for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
        const std::string when = paying(costs, static_cast<ReuseCosts::Way>(way));
        std::string& list = when.empty() ? never : pays;
        list += (list.empty() ? "" : ", ") + std::string(kChannels[way]);
        if (!when.empty()) list += " " + when;
    }
    std::string text = pays.empty()
                           ? "Registering small buffers never pays here, so all are copied."
                           : "Registering a small buffer pays for " + pays +
                                 (never.empty() ? "." : "; never for " + never + ".");
    if (posts) {
        const double saved = saved_by_direct(*posts);
        char sentence[160];
        std::snprintf(sentence, sizeof sentence,
                      " The direct path takes %.0f %% %s than libibverbs, so FI_HEDDLE_POST=auto "
                      "uses %s.",
                      std::fabs(saved), saved >= 0 ? "less" : "more",
                      posts->direct_pays() ? "the direct path" : "libibverbs");
        text += sentence;
    }
    if (device.software)
        text += " This device is softhca, a simulator: none of this predicts an adapter.";
    return text;
}

Json json_of(const PostCosts& posts) {
    Json sizes = Json::array();
    for (std::size_t i = 0; i < posts.costs.size(); ++i)
        sizes.push_back({{"queue_pairs", PostCosts::queue_pairs_of(i)},
                         {"bytes", PostCosts::size_of(i)},
                         {"verbs_ns", posts.costs[i].verbs},
                         {"direct_ns", posts.costs[i].direct}});
    return {{"auto", posts.direct_pays() ? "direct" : "verbs"}, {"sizes", sizes}};
}

Json json_of(const ReuseCosts& costs, const DeviceInfo& device, const std::string& file) {
    Json sizes = Json::array();
    for (std::size_t i = 0; i < ReuseCosts::kSizes; ++i) {
        const ReuseCosts::Cost& cost = costs.costs[i];
        if (cost.registration <= 0) continue;
        Json channels;
        for (std::size_t way = 0; way < ReuseCosts::kWays; ++way) {
            const double uses = cost.uses(static_cast<ReuseCosts::Way>(way));
            channels[kChannels[way]] = {{"copied_ns", cost.copied[way]},
                                        {"gathered_ns", cost.gathered[way]},
                                        {"uses", uses > 0 ? Json(std::ceil(uses)) : Json(nullptr)}};
        }
        sizes.push_back({{"bytes", ReuseCosts::size_of(i)},
                         {"registration_ns", cost.registration},
                         {"copy_ns", cost.copy},
                         {"lookup_ns", cost.lookup},
                         {"ways", channels}});
    }
    return {{"version", HEDDLE_VERSION},
            {"device", device.name},
            {"software", device.software},
            {"file", file.empty() ? Json(nullptr) : Json(file)},
            {"sizes", sizes}};
}

// Clears the name of a file that could not be written.
template <class Costs>
void keep(const Costs& costs, std::string& file) {
    if (file.empty()) {
        std::fprintf(stderr, "heddle calibrate: without HOME or XDG_CACHE_HOME it is not kept\n");
    } else if (!costs.save(file)) {
        std::fprintf(stderr, "heddle calibrate: %s could not be written: %s\n", file.c_str(),
                     std::strerror(errno));
        file.clear();
    }
}

int calibrate(const CalibrateRequest& request) {
    const DeviceInfo device = heddle::device(request.device);
    std::string file = ReuseCosts::file(device).string();
    std::string post_file = PostCosts::file(device).string();
    ReuseCosts costs;
    std::optional<PostCosts> posts;
    ReuseRounds rounds;  // none: nothing is measured
    if (request.show) {
        const auto known = ReuseCosts::load(file);
        if (!known) {
            std::fprintf(stderr,
                         "heddle calibrate: nothing is known of %s on this host yet (%s); without "
                         "--show it is measured\n",
                         device.name.c_str(), file.empty() ? "no HOME" : file.c_str());
            return kFailed;
        }
        costs = *known;
        if (device.mlx5) posts = PostCosts::load(post_file);
    } else {
        const verbs::Context context = verbs::open_device(port_name(device)).context;
        const verbs::ProtectionDomain pd(ibv_alloc_pd(context.get()));
        if (!pd) throw VerbsError("a protection domain", errno);
        rounds = ReuseRounds::measure(context.get(), pd.get(), ReuseCosts::size_of(6), kRounds);
        costs = rounds.settled(ReuseCosts::load(file));
        keep(costs, file);
        if (device.mlx5) {
            posts = PostCosts::measure(device.name);
            keep(*posts, post_file);
        }
    }
    if (request.json) {
        Json all = json_of(costs, device, file);
        all["post"] = posts ? json_of(*posts) : Json(nullptr);
        if (!rounds.rounds.empty()) all["spread"] = json_of(rounds);
        all["conclusion"] = conclusion(costs, posts, device);
        std::printf("%s\n", all.dump(2).c_str());
    } else {
        print(costs, device, file);
        if (!rounds.rounds.empty()) print_spread(rounds);
        if (posts) print_posts(*posts, post_file);
        std::printf(
            "\n%s",
            cli_common::wrapped("Conclusion: " + conclusion(costs, posts, device), 0).c_str());
    }
    return 0;
}

}  // namespace

void add_calibrate_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand(
        "calibrate",
        "Measure when registering a small buffer pays, and which path posts faster; keep it");
    auto request = std::make_shared<CalibrateRequest>();
    command->add_option("--device", request->device, "which (default: the first that is active)");
    command->add_flag("--show", request->show, "what is known, without measuring");
    command->add_flag("--json", request->json, "as JSON");
    command
        ->add_option("--machine", request->machine,
                     "instead, writes the machine file of this host for heddle predict (-: to "
                     "standard output); a minute")
        ->type_name("FILE")
        ->excludes("--show")
        ->excludes("--json");
    command->callback([request, status] {
        *status = request->machine.empty() ? calibrate(*request)
                                           : write_machine(request->device, request->machine);
    });
}

}  // namespace heddle::cli
