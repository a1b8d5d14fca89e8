// SPDX-License-Identifier: BSD-2-Clause
// Every option of the provider, declared once: libfabric's parameters (`fi_info -e`), the values
// themselves, their warnings, `heddle options` and docs/options.md are made from this table.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "protocol/options.h"

namespace heddle::provider {

// Where counts go at the end of the last domain, and on SIGUSR2.
enum class Stats : std::uint8_t { kOff, kStderr, kFile };

struct Options {
    protocol::Options protocol;
    std::optional<std::uint8_t> gid_index;  // nullopt: the best; see verbs/gid.h
    Stats stats = Stats::kOff;
    std::string stats_file;
};

struct OptionDeclaration {
    const char* name;  // libfabric's: "eager_size" is the variable FI_HEDDLE_EAGER_SIZE
    fi_param_type type;
    const char* initial;   // the default, as text
    const char* possible;  // what is possible
    const char* help;
    bool (*apply)(std::string_view value, Options& options);  // false: not a possible value
};

std::span<const OptionDeclaration> option_declarations() noexcept;
std::string variable_of(const OptionDeclaration& declaration);  // "FI_HEDDLE_EAGER_SIZE"

// Applies one value; false: it is not possible, nothing has changed, and `message` says what was
// given and what is possible.
bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options& options,
                  std::string& message);

// The table as docs/options.md and man/fi_heddle.7 have it.
std::string options_markdown();
std::string options_manual();

}  // namespace heddle::provider
