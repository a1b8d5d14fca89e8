// SPDX-License-Identifier: BSD-2-Clause
// The checks of `heddle doctor` that concern the host and its device.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "cli/common/text.h"
#include "cli/common/words.h"
#include "cli/heddle/doctor.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/ip_network.h"
#include "verbs/local_port.h"
#include "verbs/missing_device.h"
#include "verbs/open_device.h"
#include "verbs/port_choice.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string first_word_of(const std::string& path) {
    std::ifstream file(path);
    std::string word;
    file >> word;
    return word;
}

const char* state_name(ibv_port_state state) noexcept {
    switch (state) {
        case IBV_PORT_DOWN:
            return "DOWN";
        case IBV_PORT_INIT:
            return "INIT";
        case IBV_PORT_ARMED:
            return "ARMED";
        case IBV_PORT_ACTIVE:
            return "ACTIVE";
        default:
            return "unknown";
    }
}

// What keeps a port from being active (IBTA 14.2.5.6: PortState and PortPhysicalState).
std::string port_remedy(const ibv_port_attr& port, const std::string& interface) {
    constexpr std::uint8_t kDisabled = 3;
    const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (port.state == IBV_PORT_INIT)
        return "the link is up, but no subnet manager has configured the port: start one on a host "
               "or a switch of this fabric (opensm), or report it to the administrator";
    if (port.state == IBV_PORT_ARMED)
        return "the subnet manager is configuring the port: wait some seconds; if it stays so, "
               "restart the subnet manager (opensm)";
    if (ethernet)
        return "check the cable and the port of the switch; as root: ip link set " +
               (interface.empty() ? "INTERFACE" : interface) + " up";
    if (port.phys_state == kDisabled)
        return "the port is disabled; as root: ibportstate -D 0 1 enable";
    return "there is no link: check the cable, and the port of the switch (ibstat, iblinkinfo)";
}

// The network interface behind an entry of an Ethernet port's GID table; empty: unknown.
std::string interface_of(const std::string& device, unsigned port, unsigned gid_index) {
    return first_word_of("/sys/class/infiniband/" + device + "/ports/" + std::to_string(port) +
                         "/gid_attrs/ndevs/" + std::to_string(gid_index));
}

std::string gid_text(const std::array<std::uint8_t, 16>& gid) {
    constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::equal(kMapped.begin(), kMapped.end(), gid.begin()))
        return "IPv4 " + std::to_string(gid[12]) + "." + std::to_string(gid[13]) + "." +
               std::to_string(gid[14]) + "." + std::to_string(gid[15]);
    return verbs::is_link_local(gid) ? "link-local IPv6" : "IPv6";
}

std::string names_of(const std::vector<DeviceInfo>& ports) {
    std::string names;
    for (const DeviceInfo& each : ports)
        names += (names.empty() ? "" : ", ") + port_name(each);
    return names;
}

}  // namespace

const char* text_of(Severity verdict) noexcept {
    switch (verdict) {
        case Severity::kOk:
            return "ok";
        case Severity::kNote:
            return "note";
        case Severity::kProblem:
            break;
    }
    return "PROBLEM";
}

Checkup::Checkup(const DoctorRequest& request) : request_(request) {
    HEDDLE_ASSERT(request_.hosts != 0 && request_.threads != 0);
    if (request_.ranks == 0)
        request_.ranks = std::max(1u, std::thread::hardware_concurrency()) * request_.hosts;
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    facts_ = {{"host", host},
              {"heddle", HEDDLE_VERSION},
              {"boot", first_word_of("/proc/sys/kernel/random/boot_id")},
              {"device", nullptr},
              {"state", nullptr}};
    check_options();
    check_fork();  // first of all that registers memory
    check_device();
    if (context_) {
        check_port();
        check_address();
        check_mtu();
        check_transport();
        check_memlock();
        check_limits();
    }
    check_shared_memory();
    check_provider();
    check_libfabric();
    if (probe_ && is_usable_) check_loop();
}

void Checkup::ok(const char* name, const std::string& seen) {
    HEDDLE_ASSERT(!seen.empty());
    diagnoses_.push_back({name, Severity::kOk, seen, ""});
}

void Checkup::note(const char* name, const std::string& seen, const std::string& remedy) {
    HEDDLE_ASSERT(!seen.empty());
    diagnoses_.push_back({name, Severity::kNote, seen, remedy});
}

void Checkup::problem(const char* name, const std::string& seen, const std::string& remedy) {
    HEDDLE_ASSERT(!seen.empty() && !remedy.empty(), "a problem names its cause and its remedy");
    diagnoses_.push_back({name, Severity::kProblem, seen, remedy});
}

unsigned Checkup::problems() const noexcept {
    return static_cast<unsigned>(std::ranges::count_if(
        diagnoses_, [](const Diagnosis& each) { return each.verdict == Severity::kProblem; }));
}

nlohmann::ordered_json Checkup::report() const {
    Json all = facts_;
    all["problems"] = problems();
    all["checks"] = Json::array();
    for (const Diagnosis& each : diagnoses_)
        all["checks"].push_back({{"name", each.name},
                                 {"verdict", text_of(each.verdict)},
                                 {"seen", each.seen},
                                 {"remedy", each.remedy}});
    return all;
}

// A misspelt name does nothing, silently in most programs: libfabric's log is off.
void Checkup::check_options() {
    constexpr std::string_view kPrefix = "FI_HEDDLE_";
    std::vector<std::string> known;
    for (const provider::OptionDeclaration& each : provider::option_declarations())
        known.push_back(provider::variable_of(each));
    unsigned set = 0;
    bool all_fine = true;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string_view entry = *each;
        if (!entry.starts_with(kPrefix)) continue;
        const std::string name(entry.substr(0, entry.find('=')));
        const std::string value(entry.substr(std::min(entry.size(), name.size() + 1)));
        const auto found = std::ranges::find(known, name);
        if (found == known.end()) {
            const std::string near = cli_common::nearest_word(name, known);
            std::string remedy;
            if (!near.empty()) remedy.append("did you mean ").append(near).append("? ");
            remedy.append("heddle options lists them; unset ").append(name);
            problem("options", name + " is set, and heddle has no such option", remedy);
            all_fine = false;
            continue;
        }
        ++set;
        std::string message;
        const auto& declaration =
            provider::option_declarations()[static_cast<std::size_t>(found - known.begin())];
        if (!value.empty() && !provider::apply_option(declaration, value, options_, message)) {
            problem("options", message,
                    "correct " + name + ", or unset it: the default is " +
                        (declaration.initial[0] ? declaration.initial : "none"));
            all_fine = false;
        }
    }
    provider::settle(options_);
    verbs::take_path_options(options_.path);
    if (!request_.device.empty()) options_.protocol.device = request_.device;
    if (all_fine)
        ok("options", set == 0 ? "no FI_HEDDLE_ variable is set"
                               : times_text(set, "FI_HEDDLE_ variable") + ", known and possible");
}

void Checkup::check_fork() {
    if (verbs::survive_forks())
        ok("fork", ibv_is_fork_initialized() == IBV_FORK_UNNEEDED
                       ? "the kernel copies registered memory for children"
                       : "libibverbs keeps registered memory from children");
    else
        problem("fork", "a program that forks would lose registered memory",
                "export RDMAV_FORK_SAFE=1, or use a kernel of 5.12 or later");
}

void Checkup::check_device() {
    std::vector<DeviceInfo> all;
    try {
        if (const auto why = verbs::why_no_device()) {
            problem("device", "libibverbs lists no device", *why);
            return;
        }
        const std::string& choice = options_.protocol.device;
        all = device_ports(choice);
        if (all.empty()) {
            problem("device", "no device is named " + choice,
                    "the devices are: " + names_of(device_ports()) + "; " +
                        (request_.device.empty() ? "correct or unset FI_HEDDLE_DEVICE"
                                                 : "correct --device"));
            return;
        }
    } catch (const VerbsError& error) {
        problem("device", error.what(), "check the permissions of /dev/infiniband and /sys");
        return;
    }
    // As the provider orders them; those that it cannot use come after all others.
    const auto unusable = std::stable_partition(all.begin(), all.end(), [](const DeviceInfo& each) {
        return verbs::why_unusable(each) == nullptr;
    });
    std::vector<DeviceInfo> usable(all.begin(), unusable);
    verbs::put_best_first(usable);
    std::ranges::copy(usable, all.begin());
    device_ = all.front();
    facts_["device"] = port_name(device_);
    facts_["software"] = device_.software;
    facts_["transport"] = device_.transport;
    try {
        context_ = verbs::open_device(port_name(device_)).context;
    } catch (const VerbsError& error) {
        const bool refused = error.error() == EACCES || error.error() == EPERM;
        problem("device", error.what(),
                refused ? "the user needs access to /dev/infiniband/uverbs*: mode 0666, by a udev "
                          "rule or the package rdma-core; for a container: docker run "
                          "--device=/dev/infiniband"
                        : "ibv_devinfo -d " + device_.name + " should open it, too; see dmesg");
        return;
    }
    facts_["firmware"] = device_.firmware;
    if (device_.transport != "InfiniBand" && device_.transport != "RoCE") {
        problem("device", port_name(device_) + " is of the transport " + device_.transport,
                "heddle needs InfiniBand or RoCE: name another device in FI_HEDDLE_DEVICE");
        return;
    }
    ok("device",
       port_name(device_) + ", " + device_.transport + ", firmware " + device_.firmware +
           (device_.software ? " (software HCA)" : "") +
           (all.size() > 1 ? "; of " + times_text(static_cast<std::uint32_t>(all.size()), "port") +
                                 ": " + names_of(all)
                           : ""));
    std::string others;
    for (const DeviceInfo& each : usable)
        if (verbs::fabric_name(each) != verbs::fabric_name(device_))
            others += (others.empty() ? "" : ", ") + port_name(each) + " (" +
                      verbs::fabric_name(each) + ")";
    if (!others.empty() && options_.protocol.device.empty())
        note("networks",
             "heddle uses " + port_name(device_) + " (" + verbs::fabric_name(device_) +
                 ") and no other network: " + others,
             "name the ports of the job's network in FI_HEDDLE_DEVICE if it is another");
}

void Checkup::check_port() {
    const ibv_port_attr port = verbs::query_port(context_.get(), device_.port);
    facts_["state"] = state_name(port.state);
    facts_["mtu"] = 128u << port.active_mtu;
    const std::string what = "port " + std::to_string(device_.port) + " of " + device_.name;
    if (port.state == IBV_PORT_ACTIVE) {
        std::string speed;
        if (device_.speed != 0)
            speed = ", " + std::to_string(device_.speed / 1'000'000'000) + " Gb/s";
        ok("port", what + " is ACTIVE" + speed);
        is_usable_ = true;
        return;
    }
    problem("port", what + " is " + state_name(port.state),
            device_.software && port.state == IBV_PORT_DOWN
                ? "the link of the software HCA is down: softhca port up"
                : port_remedy(port, interface_of(device_.name, device_.port, 0)));
}

void Checkup::check_address() {
    verbs::LocalPort port;
    try {
        port = verbs::local_port(context_.get(), device_.port);
    } catch (const VerbsError& error) {
        const bool partition = error.asked().find("partition") != std::string::npos;
        problem(partition ? "partition" : "gid", error.what(),
                partition ? "correct or unset FI_HEDDLE_PKEY; the subnet manager's administrator "
                            "puts a port into a partition (partitions.conf of opensm)"
                : options_.path.gid_index
                    ? "correct or unset FI_HEDDLE_GID_INDEX"
                    : "as root: ip addr add ADDRESS/PREFIX dev INTERFACE of this port");
        is_usable_ = false;
        return;
    }
    facts_["pkey"] = port.pkey;
    if (!port.ethernet) {
        ok("gid", "LID " + std::to_string(port.lid) + ", partition " +
                      (port.pkey == 0xffff ? "0xffff (default)" : std::to_string(port.pkey)));
        return;
    }
    facts_["gid_type"] = port.roce_v1 ? "RoCE v1" : "RoCE v2";
    const std::string address = gid_text(port.gid);
    std::string what = "entry " + std::to_string(port.gid_index) + ": " +
                       (port.roce_v1 ? "RoCE v1, " : "RoCE v2, ") + address;
    if (!device_.network.empty()) what += ", network " + device_.network;
    if (port.roce_v1)
        note(
            "gid", what + ": routers do not forward it",
            options_.path.gid_index
                ? "unset FI_HEDDLE_GID_INDEX: heddle then takes an entry of RoCE v2 if there is one"
                : "give the interface an IPv4 address; heddle takes RoCE v2 where the table has "
                  "it. All hosts must agree");
    else if (verbs::is_link_local(port.gid))
        note("gid", what + ": it reaches no other subnet",
             "give the interface of this port an IPv4 address: ip addr add ADDRESS/PREFIX dev "
             "INTERFACE");
    else
        ok("gid", what);
}

void Checkup::check_mtu() {
    const ibv_port_attr port = verbs::query_port(context_.get(), device_.port);
    const unsigned active = 128u << port.active_mtu, most = 128u << port.max_mtu;
    const std::string seen = std::to_string(active) + " bytes of at most " + std::to_string(most);
    // Larger packets cost less for each byte. The kernel takes the largest IB MTU that fits into
    // the interface's MTU with RoCE's headers (kernel: iboe_get_mtu).
    if (active >= most || active >= 4096) {
        ok("mtu", seen);
        return;
    }
    if (!device_.ethernet) {
        note("mtu", seen,
             "the subnet manager decides it: mtu=5 (4096) for the partition in opensm's "
             "partitions.conf");
        return;
    }
    const std::string interface = interface_of(device_.name, device_.port, 0);
    const std::string of_interface =
        interface.empty() ? "" : first_word_of("/sys/class/net/" + interface + "/mtu");
    note("mtu", seen + (of_interface.empty() ? "" : "; " + interface + " has " + of_interface),
         "jumbo frames: ip link set " + (interface.empty() ? "INTERFACE" : interface) +
             " mtu 9000 on every host, if all switches between them take it");
}

}  // namespace heddle::cli
