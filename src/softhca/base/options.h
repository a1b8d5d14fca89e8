// SPDX-License-Identifier: BSD-2-Clause
// Every environment variable of softhca, declared once: the library reads them here, and the
// command line's flags, its help and the documentation are made from the same table.
#pragma once

#include <cstddef>
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

struct Options {
    UarPolicy uar = UarPolicy::kDynamic;
    EnginePolicy engine = EnginePolicy::kHybrid;
    MemoryPolicy memory = MemoryPolicy::kAuto;
    MemlockPolicy memlock = MemlockPolicy::kIgnore;
    LostPeerPolicy lost_peer = LostPeerPolicy::kSilent;
    PortPolicy port = PortPolicy::kInfiniBand;
    DeviceTraits device;
    LogLevel log = LogLevel::kWarn;
    char fabric[kMaxFabricName + 1] = "default";
    char directory[PATH_MAX] = "";  // empty: device/fabric_directory.h chooses
    char log_file[PATH_MAX] = "";   // empty: standard error
};

// What one variable is. `values` holds the values of a choice, in their order, the default among
// them; it is empty for free text, whose form `possible` describes.
struct OptionDeclaration {
    const char* variable;  // "SOFTHCA_UAR"
    const char* flag;      // the command line's "--uar", without the dashes
    const char* metavar;   // what help shows for the value
    const char* initial;   // the default, as text; "" for none
    std::span<const char* const> values;
    const char* possible;  // what is possible, for an error message and help
    const char* help;
    bool (*apply)(std::string_view value, Options* options);  // false: not a possible value
};

std::span<const OptionDeclaration> option_declarations() noexcept;

// Applies one value. On false `*options` is unchanged and `message` (NUL-terminated, truncated to
// `size`) names the variable, the value and what is possible.
bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options* options,
                  char* message, std::size_t size) noexcept;

// Reads all of them through `lookup` (getenv-like; an empty value is as good as none), defaults for
// what is unset or wrong. Returns the number of wrong ones; `message` holds the first one's
// message.
using OptionLookup = const char* (*)(const char* variable);
unsigned read_options(OptionLookup lookup, Options* options, char* message,
                      std::size_t size) noexcept;

// The process's options, read from the environment at the first call; wrong values are logged once.
const Options& options() noexcept;

// For logging itself, which must not report through itself.
const Options& options_without_report() noexcept;

}  // namespace softhca
