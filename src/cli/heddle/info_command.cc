// SPDX-License-Identifier: BSD-2-Clause
// heddle info: the devices of this machine, and which categories and paths they can have.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "heddle/category.h"
#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "heddle/error.h"
#include "heddle/locality.h"
#include "memory/address_monitor.h"
#include "verbs/dynamic_connection.h"
#include "verbs/local_port.h"
#include "verbs/open_device.h"
#include "verbs/port_choice.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

// "0-3,8": as taskset and sysfs write it.
std::string ranges(std::vector<int> numbers) {
    std::sort(numbers.begin(), numbers.end());
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
            ++last;
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last != i) text += "-" + std::to_string(numbers[last]);
        i = last + 1;
    }
    return text;
}

std::vector<int> near_processors(const Locality& place) {
    std::vector<int> numbers;
    for (const Processor& processor : place.processors)
        if (processor.near) numbers.push_back(processor.number);
    return numbers;
}

// What a category is on this device.
struct Possible {
    Category category;
    bool as_in_paper;
    const char* note;
};

std::vector<Possible> possible(const DeviceInfo& d) {
    std::vector<Possible> all;
    for (const Category c : kCategories) {
        if (made_on(d, c) == c) {
            all.push_back({c, true, ""});
            continue;
        }
        HEDDLE_ASSERT(!d.thread_domains && made_on(d, c) == Category::kStatic,
                      "only a driver without thread domains makes another category");
        all.push_back({c, false, "made as static: the driver has no thread domains"});
    }
    return all;
}

const char* gid_type(const DeviceInfo& port) {
    if (!port.ethernet) return "InfiniBand";
    return port.roce_v1 ? "RoCE v1" : "RoCE v2";
}

Json port_to_json(const DeviceInfo& port) {
    return {{"name", port_name(port)},
            {"number", port.port},
            {"transport", port.transport},
            {"active", port.port_active},
            {"lid", port.lid},
            {"gid", verbs::gid_text(port.gid)},
            {"gid_type", gid_type(port)},
            {"fabric", verbs::fabric_name(port)},
            {"mtu", port.mtu},
            {"speed_gbps", static_cast<double>(port.speed) / 1e9}};
}

// "active, LID 3, GID fe80::1 (RoCE v2), packets of 4096 bytes, 200 Gb/s"
std::string port_text(const DeviceInfo& port) {
    if (port.max_qps == 0) return "unknown: this process may not open the device";
    std::string text = port.transport + (port.port_active ? ", active" : ", down");
    if (!port.ethernet) text += ", LID " + std::to_string(port.lid);
    text += ", GID " + verbs::gid_text(port.gid);
    if (port.ethernet) text += std::string(" (") + gid_type(port) + ")";
    if (!port.network.empty()) text += ", network " + port.network;
    char rest[64];
    std::snprintf(rest, sizeof rest, ", packets of %u bytes, %g Gb/s", port.mtu,
                  static_cast<double>(port.speed) / 1e9);
    return text + rest;
}

// A device's ports, and the one that stands for it: the first that is active.
struct Device {
    std::vector<DeviceInfo> ports;
    const DeviceInfo& first() const {
        const auto active =
            std::ranges::find_if(ports, [](const DeviceInfo& port) { return port.port_active; });
        return active != ports.end() ? *active : ports.front();
    }
};

std::vector<Device> all_devices() {
    std::vector<Device> all;
    for (DeviceInfo& port : device_ports()) {
        if (all.empty() || all.back().ports.front().name != port.name) all.emplace_back();
        all.back().ports.push_back(std::move(port));
    }
    return all;
}

bool has_dc(const DeviceInfo& device) {
    try {
        return verbs::has_dynamic_connection(verbs::open_device(device.name).context.get());
    } catch (const VerbsError&) {  // it has gone
        return false;
    }
}

Json to_json(const Device& device, const Locality& place) {
    const DeviceInfo& d = device.first();
    Json ports = Json::array();
    for (const DeviceInfo& port : device.ports)
        ports.push_back(port_to_json(port));
    Json categories = Json::array();
    for (const Possible& p : possible(d))
        categories.push_back(
            {{"category", name(p.category)}, {"as_in_paper", p.as_in_paper}, {"note", p.note}});
    return {{"device", d.name},
            {"software", d.software},
            {"mlx5", d.mlx5},
            {"link_layer", d.ethernet ? "ethernet" : "infiniband"},
            {"port_active", d.port_active},
            {"ports", ports},
            {"firmware", d.firmware},
            {"board", d.board},
            {"pci", d.pci},
            {"numa_node", place.numa_node},
            {"near_processors", near_processors(place)},
            {"near_cores", place.near_cores()},
            {"allowed_cores", place.cores()},
            {"max_qps", d.max_qps},
            {"max_qp_depth", d.max_qp_depth},
            {"max_cqs", d.max_cqs},
            {"max_srqs", d.max_srqs},
            {"max_mrs", d.max_mrs},
            {"max_sge", d.max_sge},
            {"xrc", d.xrc},
            {"dc", has_dc(d)},
            {"atomics", d.atomics},
            {"paths", d.mlx5 ? Json{"verbs", "direct"} : Json{"verbs"}},
            {"thread_domains", d.thread_domains},
            {"keeps_memory_registered", memory::AddressMonitor::why_not().empty()},
            {"categories", categories}};
}

std::string place_text(const DeviceInfo& d, const Locality& place) {
    std::string text = d.pci.empty() ? "not on PCI" : d.pci;
    text += place.numa_node < 0 ? ", no NUMA node in particular"
                                : ", NUMA node " + std::to_string(place.numa_node);
    const std::size_t near = place.near_cores();
    HEDDLE_ASSERT(near <= place.cores(), "a core that is near is one of all");
    const std::string of = " of the " + std::to_string(place.cores()) + " cores we may use";
    if (near == 0) return text + ", none" + of + " is near";
    return text + ", near to " + std::to_string(near) + of + " (processors " +
           ranges(near_processors(place)) + ")";
}

void print(const Device& device, const Locality& place) {
    const DeviceInfo& d = device.first();
    std::printf("%s%s\n", d.name.c_str(), d.software ? "  (software HCA)" : "");
    const auto line = [](const char* what, const std::string& value) {
        std::printf("  %-12s %s\n", what, value.c_str());
    };
    line("driver", d.mlx5 ? "mlx5" : "not mlx5: UARs cannot be seen");
    for (const DeviceInfo& port : device.ports)
        line(("port " + std::to_string(port.port)).c_str(), port_text(port));
    line("firmware", d.firmware + (d.board.empty() ? "" : ", board " + d.board));
    line("place", place_text(d, place));
    line("limits", std::to_string(d.max_qps) + " QPs of depth " + std::to_string(d.max_qp_depth) +
                       ", " + std::to_string(d.max_cqs) + " CQs, " + std::to_string(d.max_srqs) +
                       " SRQs, " + std::to_string(d.max_mrs) + " MRs, " +
                       std::to_string(d.max_sge) + " pieces a request");
    line("transports", std::string("RC, UD") + (d.xrc ? ", XRC" : ", no XRC") +
                           (has_dc(d) ? ", DC" : ", no DC") +
                           (d.atomics ? ", atomics" : ", no atomics"));
    line("paths", d.mlx5 ? "verbs, direct" : "verbs");
    const std::string why_not = memory::AddressMonitor::why_not();
    line("memory", why_not.empty() ? "stays registered" : "is registered anew: " + why_not);
    std::string as_in_paper, others;
    for (const Possible& p : possible(d)) {
        std::string& list = p.as_in_paper ? as_in_paper : others;
        list += (list.empty() ? "" : ", ") + std::string(name(p.category));
    }
    line("categories", as_in_paper);
    if (!others.empty())
        line("", others + ": made as static, since the driver has no thread domains");
}

}  // namespace

void add_info_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand("info", "Devices: what they are and what they can do");
    auto* json = new bool(false);  // lives as long as the program
    command->add_flag("--json", *json, "as JSON");
    command->callback([json, status] {
        const std::vector<Device> all = all_devices();
        Json list = Json::array();
        for (const Device& each : all)
            if (*json)
                list.push_back(to_json(each, locality_of(each.first())));
            else
                print(each, locality_of(each.first()));
        if (*json) std::printf("%s\n", Json{{"devices", list}}.dump().c_str());
        if (all.empty()) device();  // which says what is missing
        *status = 0;
    });
}

}  // namespace heddle::cli
