// SPDX-License-Identifier: BSD-2-Clause
// The table of softhca's environment variables, and how their texts become Options.
#include "softhca/base/options.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"

namespace softhca {

namespace {

constexpr const char* kUarValues[] = {"dynamic", "static"};
constexpr const char* kEngineValues[] = {"hybrid", "inline", "thread", "dedicated"};
constexpr const char* kMemoryValues[] = {"auto", "cma"};
constexpr const char* kMemlockValues[] = {"ignore", "enforce"};
constexpr const char* kLostPeerValues[] = {"silent", "flush"};
constexpr const char* kPortValues[] = {"infiniband", "roce"};
constexpr const char* kLogValues[] = {"error", "warn", "info", "debug", "trace"};

// The enumerators of each choice stand in the order of its table.
template <typename Choice, std::size_t kCount>
bool choose(const char* const (&values)[kCount], std::string_view value, Choice* out) noexcept {
    for (std::size_t i = 0; i < kCount; ++i) {
        if (value == values[i]) {
            *out = static_cast<Choice>(i);
            return true;
        }
    }
    return false;
}

bool is_fabric_name(std::string_view name) noexcept {
    if (name.empty() || name.size() > kMaxFabricName || name.front() == '.') {
        return false;
    }
    for (const char c : name) {
        const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        const bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && c != '.' && c != '_' && c != '-') {
            return false;
        }
    }
    return true;
}

bool copy_text(std::string_view value, char* out, std::size_t size) noexcept {
    SOFTHCA_ASSERT(out != nullptr && size > 0);
    if (value.size() >= size || value.find('\0') != std::string_view::npos) {
        return false;
    }
    std::memcpy(out, value.data(), value.size());
    out[value.size()] = '\0';
    return true;
}

bool read_number(std::string_view value, std::uint64_t least, std::uint64_t most,
                 std::uint64_t* out) noexcept {
    SOFTHCA_ASSERT(out != nullptr && least <= most);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size()) return false;
    if (number < least || number > most) return false;
    *out = number;
    return true;
}

bool read_address(std::string_view value, std::uint32_t* out) noexcept {
    char text[INET_ADDRSTRLEN];
    in_addr address{};
    if (!copy_text(value, text, sizeof text) || ::inet_pton(AF_INET, text, &address) != 1)
        return false;
    const std::uint32_t number = ntohl(address.s_addr);
    if (number == 0 || number >> 24 == IN_LOOPBACKNET) return false;
    *out = number;
    return true;
}

// Numbers of NUMA nodes, or -1 for a device that is near to none.
bool read_nodes(std::string_view value, Options* options) noexcept {
    constexpr std::int16_t kMostNodes = 1024;  // CONFIG_NODES_SHIFT of the kernel is 10 at most
    std::int16_t nodes[kMostDevices] = {};
    unsigned count = 0;
    for (const char *at = value.data(), *const end = at + value.size();; ++at) {
        if (count == kMostDevices) return false;
        const auto [behind, error] = std::from_chars(at, end, nodes[count]);
        if (error != std::errc{} || nodes[count] < -1 || nodes[count] >= kMostNodes) return false;
        ++count;
        if (behind == end) break;
        if (*behind != ',') return false;
        at = behind;
    }
    std::memcpy(options->numa, nodes, sizeof nodes);
    options->numa_count = count;
    return true;
}

constexpr OptionDeclaration kDeclarations[] = {
    {
        .variable = "SOFTHCA_UAR",
        .flag = "uar",
        .metavar = "KERNEL",
        .initial = "dynamic",
        .values = kUarValues,
        .possible = "dynamic or static",
        .help = "how doorbell pages are allocated: on demand as by current kernels (dynamic), or "
                "eight pages with sixteen uUARs a context as in 2018 (static)",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kUarValues, value, &options->uar); },
    },
    {
        .variable = "SOFTHCA_ENGINE",
        .flag = "engine",
        .metavar = "ENGINE",
        .initial = "hybrid",
        .values = kEngineValues,
        .possible = "hybrid, inline, thread or dedicated",
        .help = "which thread executes WQEs: the posting thread (inline), a progress thread "
                "(thread), either of them (hybrid), or a progress thread that never sleeps and "
                "alone executes, as an adapter's processor does (dedicated)",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kEngineValues, value, &options->engine); },
    },
    {
        .variable = "SOFTHCA_MEMORY",
        .flag = "memory",
        .metavar = "MODE",
        .initial = "auto",
        .values = kMemoryValues,
        .possible = "auto or cma",
        .help = "how payload reaches another process: by shared memory where that is safe (auto), "
                "or always by process_vm_readv and process_vm_writev (cma)",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kMemoryValues, value, &options->memory); },
    },
    {
        .variable = "SOFTHCA_MEMLOCK",
        .flag = "memlock",
        .metavar = "LIMIT",
        .initial = "ignore",
        .values = kMemlockValues,
        .possible = "ignore or enforce",
        .help = "whether RLIMIT_MEMLOCK (ulimit -l) limits registrations, as it limits what the "
                "kernel pins for a real adapter; softhca pins nothing",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kMemlockValues, value, &options->memlock); },
    },
    {
        .variable = "SOFTHCA_LOST_PEER",
        .flag = "lost-peer",
        .metavar = "ANSWER",
        .initial = "silent",
        .values = kLostPeerValues,
        .possible = "silent or flush",
        .help = "what a connected queue pair that only receives learns when its peer's queue pair "
                "is destroyed or dies with its process: nothing, as on a wire (silent), or that "
                "its receives are flushed (flush)",
        .apply =
            [](std::string_view value, Options* options) {
                return choose(kLostPeerValues, value, &options->lost_peer);
            },
    },
    {
        .variable = "SOFTHCA_PORT",
        .flag = "port",
        .metavar = "LINK",
        .initial = "infiniband",
        .values = kPortValues,
        .possible = "infiniband or roce",
        .help = "link layer of the port: InfiniBand, with a LID, or Ethernet, with GIDs of RoCE v1 "
                "and v2; the first process of a fabric decides",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kPortValues, value, &options->port); },
    },
    {
        .variable = "SOFTHCA_ADDRESS",
        .flag = "address",
        .metavar = "IPV4",
        .initial = "",
        .values = {},
        .possible = "an IPv4 address, not 0.0.0.0 and not 127.x.y.z",
        .help = "the IPv4 address of the port, for rdma_cm and for the GIDs of an Ethernet port, "
                "instead of one of 10.0.0.0/8 that differs between fabrics; programs find it "
                "among the interfaces; other ports have the addresses behind it; the first "
                "process of a fabric decides",
        .apply = [](std::string_view value,
                    Options* options) { return read_address(value, &options->address); },
    },
    {
        .variable = "SOFTHCA_DEVICES",
        .flag = "devices",
        .metavar = "NUMBER",
        .initial = "1",
        .values = {},
        .possible = "a number from 1 to 8",
        .help = "how many devices there are, mlx5_0 and so on; the first process of a fabric "
                "decides",
        .apply =
            [](std::string_view value, Options* options) {
                return read_number(value, 1, kMostDevices, &options->devices);
            },
    },
    {
        .variable = "SOFTHCA_PORTS",
        .flag = "ports",
        .metavar = "NUMBER",
        .initial = "1",
        .values = {},
        .possible = "1 or 2",
        .help = "how many ports each device has; the first process of a fabric decides",
        .apply =
            [](std::string_view value, Options* options) {
                return read_number(value, 1, kMostPorts, &options->ports);
            },
    },
    {
        .variable = "SOFTHCA_NUMA",
        .flag = "numa",
        .metavar = "NODES",
        .initial = "",
        .values = {},
        .possible = "a comma-separated list of 1 to 8 numbers from -1 (near to no node) to 1023",
        .help = "the NUMA nodes that the devices report, which the machine need not have; a short "
                "list goes round; without it several devices are on the machine's nodes in turn; "
                "the first process of a fabric decides",
        .apply = read_nodes,
    },
    {
        .variable = "SOFTHCA_DEVICE",
        .flag = "device",
        .metavar = "TRAITS",
        .initial = "kind",
        .values = {},
        .possible = "a comma-separated list of kind, strict, random:N, seed:N and traits "
                    "(softhca traits lists them; -TRAIT removes one)",
        .help = "how strict the device is: kind, as strict as a real ConnectX (strict), or with "
                "single traits; random:N takes a subset of the traits of strict, chosen by N",
        .apply = [](std::string_view value,
                    Options* options) { return read_device_traits(value, &options->device); },
    },
    {
        .variable = "SOFTHCA_FABRIC",
        .flag = "fabric",
        .metavar = "NAME",
        .initial = "default",
        .values = {},
        .possible = "1 to 64 of the characters A-Z a-z 0-9 . _ -, not starting with a dot",
        .help = "the fabric to join; processes of one user that name the same fabric reach each "
                "other",
        .apply =
            [](std::string_view value, Options* options) {
                return is_fabric_name(value) &&
                       copy_text(value, options->fabric, sizeof options->fabric);
            },
    },
    {
        .variable = "SOFTHCA_DIRECTORY",
        .flag = "directory",
        .metavar = "DIRECTORY",
        .initial = "",
        .values = {},
        .possible = "an absolute path of at most 3800 bytes",
        .help = "an existing directory in which fabrics are kept (in softhca-UID) instead of "
                "/dev/shm, best on tmpfs; all processes of a fabric, and the commands that "
                "inspect it, need the same value",
        .apply =
            [](std::string_view value, Options* options) {
                // File names of the discovery tree are appended to it.
                return value.starts_with('/') && value.size() <= 3800 &&
                       copy_text(value, options->directory, sizeof options->directory);
            },
    },
    {
        .variable = "SOFTHCA_LOG",
        .flag = "log",
        .metavar = "LEVEL",
        .initial = "warn",
        .values = kLogValues,
        .possible = "error, warn, info, debug or trace",
        .help = "the least important messages that are written",
        .apply = [](std::string_view value,
                    Options* options) { return choose(kLogValues, value, &options->log); },
    },
    {
        .variable = "SOFTHCA_LOG_FILE",
        .flag = "log-file",
        .metavar = "FILE",
        .initial = "",
        .values = {},
        .possible = "a path of at most 4095 bytes",
        .help = "a file to append messages to, instead of standard error",
        .apply =
            [](std::string_view value, Options* options) {
                return !value.empty() &&
                       copy_text(value, options->log_file, sizeof options->log_file);
            },
    },
    {
        .variable = "SOFTHCA_RECORD",
        .flag = "record",
        .metavar = "FILE",
        .initial = "",
        .values = {},
        .possible = "a path of at most 4000 bytes",
        .help = "write a run record: what each thread posts and polls, for a timing model; %p in "
                "FILE is the process's pid, and without %p the name gets .PID at its end",
        .apply =
            [](std::string_view value, Options* options) {
                return !value.empty() && value.size() <= 4000 &&
                       copy_text(value, options->record, sizeof options->record);
            },
    },
    {
        .variable = "SOFTHCA_RECORD_LIMIT",
        .flag = "record-limit",
        .metavar = "LINES",
        .initial = "100000",
        .values = {},
        .possible = "a number from 1 to 1000000000",
        .help = "how many lines of a run record one thread may fill; what follows is left out, and "
                "the record says so",
        .apply =
            [](std::string_view value, Options* options) {
                return read_number(value, 1, 1'000'000'000, &options->record_limit);
            },
    },
};
constexpr bool defaults_are_listed() noexcept {
    for (const OptionDeclaration& each : kDeclarations) {
        bool listed = each.values.empty();
        for (const char* value : each.values)
            listed = listed || std::string_view(value) == each.initial;
        if (!listed) return false;
    }
    return true;
}
static_assert(defaults_are_listed(), "the default of a choice is one of its values");
template <std::size_t kCount>
constexpr bool ends_with_last(const char* const (&)[kCount], auto last) noexcept {
    return kCount == static_cast<std::size_t>(last) + 1;
}
static_assert(ends_with_last(kUarValues, UarPolicy::kStatic));
static_assert(ends_with_last(kEngineValues, EnginePolicy::kDedicated));
static_assert(ends_with_last(kMemoryValues, MemoryPolicy::kCma));
static_assert(ends_with_last(kMemlockValues, MemlockPolicy::kEnforce));
static_assert(ends_with_last(kLostPeerValues, LostPeerPolicy::kFlush));
static_assert(ends_with_last(kPortValues, PortPolicy::kRoce));
static_assert(ends_with_last(kLogValues, LogLevel::kTrace));

struct Loaded {
    Options options;
    unsigned wrong;
    char message[512];
};

const Loaded& loaded() noexcept {
    // The object is never destroyed: exit handlers of other libraries still open and close files.
    static const Loaded values = [] {
        Loaded fresh{};
        // secure_getenv(3) ignores the environment in a set-user-id program, where SOFTHCA_LOG_FILE
        // would name a file for the program's owner to write.
        const auto lookup = [](const char* variable) -> const char* {
            return ::secure_getenv(variable);
        };
        fresh.wrong = read_options(lookup, &fresh.options, fresh.message, sizeof fresh.message);
        SOFTHCA_ASSERT((fresh.wrong == 0) == (fresh.message[0] == '\0'));
        return fresh;
    }();
    return values;
}

}  // namespace

std::span<const OptionDeclaration> option_declarations() noexcept { return kDeclarations; }

bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options* options,
                  char* message, std::size_t size) noexcept {
    SOFTHCA_ASSERT(size > 0);
    SOFTHCA_ASSERT(declaration.apply != nullptr && options != nullptr);
    if (declaration.apply(value, options)) {
        return true;
    }
    // A value may have any length, so only its beginning is printed.
    const int shown = value.size() < 128 ? static_cast<int>(value.size()) : 128;
    std::snprintf(message, size, "%s=\"%.*s\" is not valid: it must be %s", declaration.variable,
                  shown, value.data(), declaration.possible);
    return false;
}

unsigned read_options(OptionLookup lookup, Options* options, char* message,
                      std::size_t size) noexcept {
    SOFTHCA_ASSERT(lookup != nullptr && options != nullptr);
    *options = Options{};
    if (size > 0) {
        message[0] = '\0';
    }
    unsigned wrong = 0;
    for (const OptionDeclaration& declaration : kDeclarations) {
        const char* value = lookup(declaration.variable);
        if (value == nullptr || value[0] == '\0') {
            continue;
        }
        char ignored[1];
        char* text = wrong == 0 ? message : ignored;
        const std::size_t room = wrong == 0 ? size : sizeof ignored;
        if (!apply_option(declaration, value, options, text, room)) {
            ++wrong;
        }
    }
    SOFTHCA_ASSERT(wrong <= std::size(kDeclarations));
    return wrong;
}

const Options& options_without_report() noexcept { return loaded().options; }

const Options& options() noexcept {
    const Loaded& values = loaded();
    static std::atomic<bool> reported{false};
    if (values.wrong > 0 && !reported.exchange(true, std::memory_order_relaxed)) {
        LOG_ERROR("%s; the default is used%s", values.message,
                  values.wrong > 1 ? " (other variables are not valid either)" : "");
    }
    return values.options;
}

}  // namespace softhca
