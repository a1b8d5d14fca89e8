// SPDX-License-Identifier: BSD-2-Clause
// heddle info: the devices of this machine, and which categories and paths they can have.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/heddle/commands.h"
#include "cli/text.h"
#include "heddle/device.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const DeviceInfo& d) {
    return {{"device", d.name},
            {"software", d.software},
            {"mlx5", d.mlx5},
            {"link_layer", d.ethernet ? "ethernet" : "infiniband"},
            {"port_active", d.port_active},
            {"firmware", d.firmware},
            {"board", d.board},
            {"pci", d.pci},
            {"numa_node", d.numa_node},
            {"max_qps", d.max_qps},
            {"max_qp_depth", d.max_qp_depth},
            {"max_cqs", d.max_cqs},
            {"max_srqs", d.max_srqs},
            {"max_mrs", d.max_mrs},
            {"max_sge", d.max_sge},
            {"xrc", d.xrc},
            {"atomics", d.atomics},
            {"paths", d.mlx5 ? Json{"verbs", "direct"} : Json{"verbs"}},
            {"thread_domains", d.mlx5}};
}

void print(const DeviceInfo& d) {
    std::printf("%s%s\n", d.name.c_str(), d.software ? "  (software HCA)" : "");
    const auto line = [](const char* what, const std::string& value) {
        std::printf("  %-12s %s\n", what, value.c_str());
    };
    line("driver", d.mlx5 ? "mlx5" : "not mlx5: UARs cannot be seen");
    line("link", std::string(d.ethernet ? "Ethernet (RoCE)" : "InfiniBand") +
                     (d.port_active ? ", port 1 active" : ", port 1 down"));
    line("firmware", d.firmware + (d.board.empty() ? "" : ", board " + d.board));
    line("place", (d.pci.empty() ? "?" : d.pci) +
                      (d.numa_node < 0 ? "" : ", NUMA node " + std::to_string(d.numa_node)));
    line("limits", std::to_string(d.max_qps) + " QPs of depth " + std::to_string(d.max_qp_depth) +
                       ", " + std::to_string(d.max_cqs) + " CQs, " + std::to_string(d.max_srqs) +
                       " SRQs, " + std::to_string(d.max_mrs) + " MRs, " +
                       std::to_string(d.max_sge) + " pieces a request");
    line("transports", std::string("RC, UD") + (d.xrc ? ", XRC" : ", no XRC") +
                           (d.atomics ? ", atomics" : ", no atomics"));
    line("paths", d.mlx5 ? "verbs, direct" : "verbs");
    line("categories", d.mlx5 ? "all six"
                              : "all six by context, QP and lock; no thread domains, so 2xdynamic, "
                                "dynamic and shared-dynamic are as static");
}

}  // namespace

void add_info_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand("info", "Devices: what they are and what they can do");
    auto* json = new bool(false);  // lives as long as the program
    command->add_flag("--json", *json, "as JSON");
    command->callback([json, status] {
        const auto all = devices();
        if (*json) {
            Json list = Json::array();
            for (const DeviceInfo& d : all)
                list.push_back(to_json(d));
            std::printf("%s\n", Json{{"devices", list}}.dump().c_str());
        } else if (all.empty()) {
            std::printf(
                "No RDMA device on this machine. `softhca run -- heddle info` shows the "
                "software one.\n");
        } else {
            for (const DeviceInfo& d : all)
                print(d);
        }
        *status = all.empty() ? kFailed : 0;
    });
}

}  // namespace heddle::cli
