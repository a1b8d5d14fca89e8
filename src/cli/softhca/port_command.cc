// SPDX-License-Identifier: BSD-2-Clause
// `softhca port`: the state of the ports of a fabric, and its changes while programs run: a link
// that goes down or comes up, addresses of an Ethernet port that come or go.
#include <arpa/inet.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/common/text.h"
#include "cli/softhca/commands.h"
#include "cli/softhca/fabric_ports.h"
#include "softhca/base/assert.h"

namespace softhca::cli {
namespace {

constexpr const char* kActions = "status, down, up, gid add ADDRESS or gid remove ADDRESS";

struct PortArguments {
    std::string fabric, device;
    unsigned port = 1;
    bool json = false;
    std::vector<std::string> action;
};

std::string name_of(const device::Port& port) {
    return std::string(device::device_name(port.device()).c_str()) + "/" +
           std::to_string(port.number());
}

std::string text_of(const device::IpAddress& address) {
    const device::GidEntry entry{address.high, address.low};
    std::uint8_t raw[16];
    entry.copy_to(raw);
    char text[INET6_ADDRSTRLEN] = "";
    if (entry.is_ipv4())
        inet_ntop(AF_INET, raw + 12, text, sizeof text);
    else
        inet_ntop(AF_INET6, raw, text, sizeof text);
    return text;
}

// The addresses in the GID table, each once. InfiniBand: its GID.
std::vector<std::string> addresses_of(const device::Port& port) {
    std::vector<std::string> texts;
    for (unsigned i = 0; i < device::kGidTableLength; ++i) {
        const device::GidEntry entry = port.gid(i);
        if (entry.type == device::GidType::kNone) continue;
        const std::string text = text_of({entry.high, entry.low});
        if (texts.empty() || texts.back() != text) texts.push_back(text);
    }
    return texts;
}

void print_ports(const std::vector<device::Port>& ports, bool as_json) {
    if (as_json) {
        nlohmann::ordered_json json = nlohmann::ordered_json::array();
        for (const device::Port& port : ports)
            json.push_back({{"device", device::device_name(port.device()).c_str()},
                            {"port", port.number()},
                            {"link_layer", port.is_ethernet() ? "Ethernet" : "InfiniBand"},
                            {"state", port.is_up() ? "ACTIVE" : "DOWN"},
                            {"lid", port.lid()},
                            {"addresses", addresses_of(port)}});
        std::printf("%s\n", json.dump(2).c_str());
        return;
    }
    cli_common::TextTable table({"PORT", "LINK", "STATE", "LID", "ADDRESSES"});
    for (const device::Port& port : ports) {
        std::string addresses;
        for (const std::string& each : addresses_of(port))
            addresses += (addresses.empty() ? "" : " ") + each;
        table.add({name_of(port), port.is_ethernet() ? "Ethernet" : "InfiniBand",
                   port.is_up() ? "ACTIVE" : "DOWN",
                   port.is_ethernet() ? "-" : std::to_string(port.lid()), addresses});
    }
    std::fputs(table.text().c_str(), stdout);
}

const device::Port& find_port(const std::vector<device::Port>& ports,
                              const PortArguments& arguments) {
    SOFTHCA_ASSERT(!ports.empty(), "a fabric has one port at least");
    for (const device::Port& port : ports)
        if (device::device_name(port.device()).view() == arguments.device &&
            port.number() == arguments.port)
            return port;
    throw CommandError("fabric " + arguments.fabric + " has no port " + arguments.device + "/" +
                           std::to_string(arguments.port) + ", but " + name_of(ports.front()) +
                           (ports.size() > 1 ? " to " + name_of(ports.back()) : ""),
                       kUsage);
}

device::IpAddress read_address(const std::string& text) {
    std::uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (inet_pton(AF_INET, text.c_str(), raw + 12) != 1 &&
        inet_pton(AF_INET6, text.c_str(), raw) != 1)
        throw CommandError("'" + text + "' is no address: it must be IPv4 or IPv6", kUsage);
    const device::IpAddress address = device::ip_address(raw);
    const bool is_multicast = raw[0] == 0xff;
    if (address == device::IpAddress{} || address == device::ipv4_address(0) || is_multicast)
        throw CommandError("'" + text + "' is no address of one port", kUsage);
    return address;
}

Change change_of(const std::vector<std::string>& action) {
    if (action == std::vector<std::string>{"down"})
        return [](auto& segment, unsigned index) { return set_link(segment, index, false); };
    if (action == std::vector<std::string>{"up"})
        return [](auto& segment, unsigned index) { return set_link(segment, index, true); };
    if (action.size() == 3 && action[0] == "gid" && (action[1] == "add" || action[1] == "remove")) {
        const device::IpAddress address = read_address(action[2]);
        if (action[1] == "add")
            return [address](auto& segment, unsigned index) {
                return add_address(segment, index, address);
            };
        return [address](auto& segment, unsigned index) {
            return remove_address(segment, index, address);
        };
    }
    std::string given;
    for (const std::string& word : action)
        given += (given.empty() ? "" : " ") + word;
    throw CommandError("'" + given + "' is not possible: it must be " + kActions, kUsage);
}

void report(device::PortChange result, const device::Port& port,
            const std::vector<std::string>& action) {
    const std::string name = name_of(port);
    switch (result) {
        case device::PortChange::kDone:
            return;
        case device::PortChange::kNothingToDo:
            if (action[0] != "gid")
                std::printf("%s is %s already\n", name.c_str(), action[0].c_str());
            else if (action[1] == "add")
                std::printf("%s has %s already\n", name.c_str(), action[2].c_str());
            else
                throw CommandError(name + " has no address " + action[2]);
            return;
        case device::PortChange::kNoRoom:
            throw CommandError(
                name + " has no room for " + action[2] + ": its GID table is full (" +
                std::to_string(device::kGidTableLength) + " entries, two for each address)");
        case device::PortChange::kTaken:
            throw CommandError("another port has the address " + action[2]);
        case device::PortChange::kInfiniBand:
            throw CommandError(name +
                               " is an InfiniBand port, whose GIDs do not change; Ethernet "
                               "ports are those of softhca run --port roce");
    }
}

void run_port(PortArguments& arguments) {
    const bool shows =
        arguments.action.empty() || arguments.action == std::vector<std::string>{"status"};
    if (!shows && arguments.json)
        throw CommandError("--json is for status, which alone prints", kUsage);
    const Change change = shows ? Change() : change_of(arguments.action);
    const std::vector<device::Port> ports = fabric_ports(arguments.fabric);
    if (shows) return print_ports(ports, arguments.json);
    const device::Port& port = find_port(ports, arguments);
    report(change_port(arguments.fabric, port.index(), change), port, arguments.action);
}

}  // namespace

void add_port_command(CLI::App& app, int* status) {
    auto arguments = std::make_shared<PortArguments>();
    CLI::App* command = app.add_subcommand(
        "port", "show the ports of a fabric, or let a link go down or up, or a GID come or go");
    CLI::Option* fabric = add_fabric_option(*command, &arguments->fabric);
    command->add_option("--device", arguments->device, "whose port [default mlx5_0]")
        ->default_str("mlx5_0")
        ->type_name("NAME");
    command->add_option("--port", arguments->port, "which port of it [default 1]")
        ->type_name("NUMBER");
    command->add_flag("--json", arguments->json, "status as JSON");
    command->add_option("ACTION", arguments->action, std::string(kActions) + " [default status]")
        ->expected(0, 3)
        ->type_name("");
    command->callback([arguments, fabric, status] {
        arguments->fabric = fabric_name(*fabric);
        if (arguments->device.empty()) arguments->device = device::device_name(0).c_str();
        run_port(*arguments);
        *status = kSuccess;
    });
}

}  // namespace softhca::cli
