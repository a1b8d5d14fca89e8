// SPDX-License-Identifier: BSD-2-Clause
// The environment variables of softhca, each declared once. The library reads them from this table.
// The command line's flags, its help and the documentation are generated from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <limits.h>

#include "softhca/base/device_traits.h"

namespace softhca {

enum class UarPolicy { kDynamic, kStatic };
enum class EnginePolicy { kHybrid, kInline, kThread, kDedicated };
constexpr bool leaves_all_to_thread(EnginePolicy engine) noexcept {
    return engine == EnginePolicy::kThread || engine == EnginePolicy::kDedicated;
}
enum class MemoryPolicy { kAuto, kCma };
enum class MemlockPolicy { kIgnore, kEnforce };
enum class LostPeerPolicy { kSilent, kFlush };
enum class PortPolicy { kInfiniBand, kRoce };
enum class LogLevel { kError, kWarn, kInfo, kDebug, kTrace };

inline constexpr std::size_t kMaxFabricName = 64;
inline constexpr unsigned kMostDevices = 8, kMostPorts = 2;
inline constexpr std::uint64_t kRecordLimit = 100'000;  // about 15 MB

struct Options {
    UarPolicy uar = UarPolicy::kDynamic;
    EnginePolicy engine = EnginePolicy::kHybrid;
    MemoryPolicy memory = MemoryPolicy::kAuto;
    MemlockPolicy memlock = MemlockPolicy::kIgnore;
    LostPeerPolicy lost_peer = LostPeerPolicy::kSilent;
    PortPolicy port = PortPolicy::kInfiniBand;
    std::uint32_t address = 0;  // IPv4 of the first port, host byte order; 0: port.h chooses
    std::uint64_t devices = 1, ports = 1;  // how many devices, and ports of each
    // The devices' NUMA nodes, of which as many are given as `numa_count` says: the list goes
    // round.
    std::int16_t numa[kMostDevices] = {};
    unsigned numa_count = 0;
    DeviceTraits device;
    LogLevel log = LogLevel::kWarn;
    char fabric[kMaxFabricName + 1] = "default";
    char directory[PATH_MAX] = "";              // empty: device/fabric_directory.h chooses
    char log_file[PATH_MAX] = "";               // empty: standard error
    char record[PATH_MAX] = "";                 // empty: no run record
    std::uint64_t record_limit = kRecordLimit;  // lines of one thread
};

// One variable. For a choice, `values` lists its values in the order of the enumerators, the
// default among them. For free text `values` is empty and `possible` describes the form.
struct OptionDeclaration {
    const char* variable;  // "SOFTHCA_UAR"
    const char* flag;      // the command line's "--uar", without the dashes
    const char* metavar;   // what help shows for the value
    const char* initial;   // the default, as text; "" for none
    std::span<const char* const> values;
    const char* possible;  // the valid values, for error messages and help
    const char* help;
    bool (*apply)(std::string_view value, Options* options);  // false: the value is not valid
};

std::span<const OptionDeclaration> option_declarations() noexcept;

// Applies one value. If it returns false, `*options` is unchanged, and `message` names the
// variable, the value and the valid values. `message` is NUL-terminated and truncated to `size`
// bytes.
bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options* options,
                  char* message, std::size_t size) noexcept;

// Reads all variables through `lookup`, a function like getenv(3). A variable that is unset, empty
// or not valid gets its default. Returns the number of variables that are not valid; `message`
// describes the first of them.
using OptionLookup = const char* (*)(const char* variable);
unsigned read_options(OptionLookup lookup, Options* options, char* message,
                      std::size_t size) noexcept;

// The process's options, read from the environment at the first call. Values that are not valid are
// logged once.
const Options& options() noexcept;

// The same without logging, for the logger itself.
const Options& options_without_report() noexcept;

}  // namespace softhca
