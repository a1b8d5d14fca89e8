// SPDX-License-Identifier: BSD-2-Clause
// What driver, kernel and libraries tell: see hardware_check.h.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>

#include "cli/heddle/hardware_check.h"
#include "experiments/message_rate.h"
#include "heddle/category.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_objects.h"
#include "memory/address_monitor.h"
#include "verbs/connection.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr HardwareCheck kChecks[] = {
    {"versions", "which kernel, rdma-core, libfabric and firmware there are", check_versions},
    {"device", "whether the device has what heddle uses: direct posting, XRC, atomics",
     check_device},
    {"port", "whether the port is active, and what its GIDs are", check_port},
    {"registers", "where the driver puts QPs: uUARs, and whether they take BlueFlame",
     check_registers},
    {"entries", "whether libmlx5 and the direct path write the same entries and records",
     check_entries},
    {"arm", "whether an event comes after many arms without one", check_arm},
    {"arm-repeated", "what the device does with arms whose number is wrong", check_repeated_arm},
    {"order", "whether the end of a write is ever seen before what precedes it", check_order},
    {"scatter", "whether small messages come in the completion queue entry", check_scatter},
    {"numbers", "how soon the number of a QP that is gone comes again", check_numbers},
    {"memory-events", "whether the kernel tells of memory that is unmapped", check_memory_events},
    {"rates", "messages per second of two threads, by category and path", check_rates},
};

// The file that a function comes from, without symbolic links: its name has the version.
template <class Function>
std::string library_of(Function* function) {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr)
        return "";
    std::error_code error;
    const auto path = std::filesystem::canonical(info.dli_fname, error);
    return error ? info.dli_fname : path.filename().string();
}

std::string libfabric_version() {
    void* const library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "";
    const auto version = reinterpret_cast<std::uint32_t (*)()>(dlsym(library, "fi_version"));
    std::string text;
    if (version != nullptr) {
        const std::uint32_t number = version();
        text = std::to_string(number >> 16) + "." + std::to_string(number & 0xffff);
    }
    dlclose(library);
    return text;
}

std::string hexadecimal(const std::uint8_t* bytes, std::size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        text += kDigits[bytes[i] >> 4];
        text += kDigits[bytes[i] & 15];
    }
    return text;
}

class Watcher final : public memory::AddressMonitor::Listener {
public:
    void gone(std::uintptr_t begin, std::uintptr_t end) noexcept override {
        if (begin < end_ && end > begin_) notified = true;
    }
    bool wants(std::uintptr_t begin, std::uintptr_t end) const noexcept override {
        return begin < end_ && end > begin_;
    }
    Watcher(std::uintptr_t begin, std::uintptr_t end) : begin_(begin), end_(end) {
        HEDDLE_ASSERT(begin < end, "a range has bytes");
    }
    bool notified = false;  // under the monitor's mutex

private:
    std::uintptr_t begin_, end_;
};

Finding unasked(const std::string& why, const std::string& meaning) {
    Finding finding;
    finding.answer = Answer::kNotAsked;
    finding.seen = why;
    finding.meaning = meaning;
    return finding;
}

}  // namespace

const char* text_of(Answer answer) noexcept {
    switch (answer) {
        case Answer::kAsExpected:
            return "as expected";
        case Answer::kDiffers:
            return "differs";
        case Answer::kNotAsked:
            break;
    }
    return "could not be asked";
}

std::span<const HardwareCheck> hardware_checks() noexcept { return kChecks; }

Finding check_versions(CheckedDevice& device) {
    Finding finding;
    utsname kernel{};
    uname(&kernel);
    const std::string fabric = libfabric_version();
    finding.details = {{"kernel", kernel.release},
                       {"machine", kernel.machine},
                       {"libibverbs", library_of(&ibv_get_device_list)},
                       {"libmlx5", library_of(&mlx5dv_query_device)},
                       {"libfabric", fabric.empty() ? Json(nullptr) : Json(fabric)},
                       {"firmware", device.info.firmware},
                       {"board", device.info.board},
                       {"software", device.info.software}};
    finding.seen = std::string("Linux ") + kernel.release + ", firmware " + device.info.firmware +
                   (fabric.empty() ? ", no libfabric" : ", libfabric " + fabric);
    finding.meaning = device.info.software ? "This is the software HCA, not an adapter."
                                           : "The other results are of these versions.";
    return finding;
}

Finding check_device(CheckedDevice& device) {
    Finding finding;
    ibv_device_attr attributes{};
    if (const int error = ibv_query_device(device.context(), &attributes))
        throw VerbsError("the attributes of " + device.info.name, error);
    finding.details = {{"part", attributes.vendor_part_id},
                       {"mlx5", device.info.mlx5},
                       {"xrc", device.info.xrc},
                       {"atomics", device.info.atomics},
                       {"thread_domains", device.info.thread_domains},
                       {"max_qp", attributes.max_qp},
                       {"max_qp_wr", attributes.max_qp_wr},
                       {"max_sge", attributes.max_sge},
                       {"max_cqe", attributes.max_cqe},
                       {"max_mr", attributes.max_mr},
                       {"max_srq", attributes.max_srq},
                       {"max_qp_rd_atom", attributes.max_qp_rd_atom}};
    mlx5dv_context inside{};
    inside.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
    if (device.info.mlx5 && mlx5dv_query_device(device.context(), &inside) == 0) {
        finding.details["cqe_version"] = inside.version;
        finding.details["flags"] = inside.flags;
        finding.details["compressed_cqes"] = inside.cqe_comp_caps.max_num;
    }
    std::string lacks;
    const auto need = [&lacks](bool there, const char* what) {
        if (!there) lacks += (lacks.empty() ? "" : ", ") + std::string(what);
    };
    need(device.info.mlx5, "direct posting");
    need(device.info.xrc, "XRC");
    need(device.info.atomics, "atomics");
    need(device.info.thread_domains, "thread domains");
    if (lacks.empty()) {
        finding.seen = "an mlx5 device with XRC, atomics and thread domains";
        finding.meaning = "All of heddle can be used.";
    } else {
        finding.answer = Answer::kDiffers;
        finding.seen = "no " + lacks;
        finding.meaning =
            "heddle does without: see docs/concepts/endpoints.md for thread domains, "
            "docs/reference/options.md for FI_HEDDLE_POST and FI_HEDDLE_TRANSPORT.";
    }
    return finding;
}

Finding check_port(CheckedDevice& device) {
    Finding finding;
    const ibv_port_attr port = verbs::query_port(device.context(), device.info.port);
    const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    Json gids = Json::array();
    for (int i = 0; i < port.gid_tbl_len; ++i) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(device.context(), device.info.port, static_cast<std::uint32_t>(i),
                             &entry, 0) != 0)
            continue;
        gids.push_back({{"index", i},
                        {"type", entry.gid_type == IBV_GID_TYPE_IB        ? "IB"
                                 : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1"
                                                                          : "RoCE v2"},
                        // the upper half names the subnet; the rest would name the host
                        {"prefix", hexadecimal(entry.gid.raw, 8)}});
    }
    finding.details = {{"state", ibv_port_state_str(port.state)},
                       {"link_layer", ethernet ? "Ethernet" : "InfiniBand"},
                       {"active_mtu", 128 << port.active_mtu},
                       {"width", port.active_width},
                       {"speed", port.active_speed},
                       {"gids", gids}};
    finding.seen = std::string(ibv_port_state_str(port.state)) + ", " +
                   (ethernet ? "Ethernet" : "InfiniBand") + ", MTU " +
                   std::to_string(128 << port.active_mtu) + ", " + std::to_string(gids.size()) +
                   " GIDs";
    finding.meaning = "Messages can be sent from this port.";
    if (port.state != IBV_PORT_ACTIVE) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "No message leaves this port; checks that need a connection fail.";
    } else if (ethernet && !std::any_of(gids.begin(), gids.end(),
                                        [](const Json& gid) { return gid["type"] == "RoCE v2"; })) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "There is no GID of RoCE v2: peers beyond a router are not reached.";
    }
    return finding;
}

Finding check_registers(CheckedDevice& device) {
    if (!device.info.mlx5)
        return unasked("not an mlx5 device", "Its driver does not show registers.");
    Finding finding;
    verbs::CompletionQueue cq(ibv_create_cq(device.context(), 64, nullptr, nullptr, 0));
    if (!cq) throw VerbsError("a completion queue", errno);
    const auto make = [&](ibv_pd* pd) {
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.send_cq = wanted.recv_cq = cq.get();
        wanted.cap = {.max_send_wr = 4,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
        verbs::QueuePair qp(ibv_create_qp(pd, &wanted));
        if (!qp) throw VerbsError("a queue pair", errno);
        return qp;
    };
    std::map<void*, int> uses;
    std::vector<verbs::QueuePair> qps;
    std::uint32_t bytes = 0;
    constexpr int kQps = 20;
    for (int i = 0; i < kQps; ++i) {
        qps.push_back(make(device.pd()));
        const mlx5dv_qp shown = post::detail::layout_of(qps.back().get());
        ++uses[shown.bf.reg];
        bytes = std::max(bytes, shown.bf.size);
    }
    verbs::ThreadDomain domains[2];
    verbs::ProtectionDomain parents[2];
    verbs::QueuePair alone[2];
    bool apart = true;
    for (int i = 0; i < 2; ++i) {
        ibv_td_init_attr nothing{};
        domains[i].reset(ibv_alloc_td(device.context(), &nothing));
        if (!domains[i]) throw VerbsError("a thread domain", errno);
        ibv_parent_domain_init_attr attributes{};
        attributes.pd = device.pd();
        attributes.td = domains[i].get();
        parents[i].reset(ibv_alloc_parent_domain(device.context(), &attributes));
        if (!parents[i]) throw VerbsError("a parent domain", errno);
        alone[i] = make(parents[i].get());
        apart = uses[post::detail::layout_of(alone[i].get()).bf.reg]++ == 0 && apart;
    }
    HEDDLE_ASSERT(
        std::accumulate(uses.begin(), uses.end(), 0,
                        [](int sum, const auto& use) { return sum + use.second; }) == kQps + 2,
        "each QP has one register");
    const auto most = std::max_element(
        uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    finding.details = {{"qps", kQps},
                       {"registers", uses.size()},
                       {"most_on_one", most->second},
                       {"blueflame_bytes", bytes},
                       {"thread_domains_apart", apart}};
    finding.seen = std::to_string(kQps + 2) + " QPs on " + std::to_string(uses.size()) +
                   " registers, BlueFlame of " + std::to_string(bytes) + " bytes";
    finding.meaning =
        "Each thread domain has a uUAR of its own, and small messages go by BlueFlame.";
    if (!apart || bytes == 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning =
            bytes == 0 ? "There is no BlueFlame: the device fetches each entry from memory, and "
                         "the categories differ by locks alone."
                       : "Thread domains share a uUAR: the categories of endpoints do not keep "
                         "threads apart.";
    }
    return finding;
}

Finding check_memory_events(CheckedDevice&) {
    memory::AddressMonitor monitor;
    if (!monitor.ready())
        return unasked("userfaultfd(2) is not allowed",
                       "Registrations are not kept, and small buffers are copied: see "
                       "vm.unprivileged_userfaultfd.");
    Finding finding;
    constexpr std::size_t kLength = 1 << 16;
    void* const memory =
        mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw VerbsError("memory", errno);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    Watcher watcher(begin, begin + kLength);
    monitor.add(watcher);
    bool watched;
    {
        const std::lock_guard guard(monitor.mutex());
        watched = monitor.watch(begin, begin + kLength);
    }
    munmap(memory, kLength);
    bool notified;
    {
        const std::lock_guard guard(monitor.mutex());
        notified = watcher.notified;
    }
    monitor.remove(watcher);
    finding.seen = !watched   ? "memory cannot be watched"
                   : notified ? "told of an unmapped range before munmap() returned"
                              : "not told of an unmapped range";
    finding.meaning = "Registrations can be kept while the memory is what it was.";
    if (!notified) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "FI_HEDDLE_REUSE=off and FI_HEDDLE_MR_CACHE=0 are needed here.";
    }
    return finding;
}

Finding check_rates(CheckedDevice& device) {
    Finding finding;
    constexpr double kNoise = 0.8;  // what is less of the other rate is slower
    double best[2] = {};
    for (const Category category : kCategories) {
        Json row = {{"category", heddle::name(category)}};
        for (const Path path : {Path::kVerbs, Path::kDirect}) {
            if (path == Path::kDirect && !device.info.mlx5) continue;
            bench::MessageRate wanted;
            wanted.device = device.info.name;
            wanted.threads = 2;
            wanted.sharing = sharing_of(made_on(device.info, category), wanted.threads);
            wanted.path = path;
            bench::MessageRateRun run(wanted);
            run.warm_up();
            const double rate = run.repeat().per_cpu_second;  // in millions
            row[path == Path::kDirect ? "direct" : "verbs"] = rate;
            HEDDLE_ASSERT(rate > 0, "a repetition posts messages");
            double& most = best[path == Path::kDirect ? 1 : 0];
            most = std::max(most, rate);
        }
        finding.details["categories"].push_back(std::move(row));
    }
    char text[128];
    std::snprintf(text, sizeof text,
                  "at most %.1f million messages of 2 bytes for a second of processor time by "
                  "libibverbs, %.1f directly",
                  best[0], best[1]);
    finding.seen = text;
    finding.meaning = "The direct path is not slower, as FI_HEDDLE_POST=auto has it.";
    if (best[1] < kNoise * best[0]) {
        finding.answer = Answer::kDiffers;
        finding.meaning = device.info.mlx5
                              ? "heddle calibrate makes FI_HEDDLE_POST=auto take the faster path."
                              : "There is no direct path on this device.";
    }
    return finding;
}

}  // namespace heddle::cli
