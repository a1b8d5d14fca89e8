// SPDX-License-Identifier: BSD-2-Clause
// Declares every option of the provider once. libfabric's parameters (`fi_info -e`), the values,
// their warnings, `heddle options` and docs/reference/options.md come from this table.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "protocol/common/options.h"
#include "verbs/local_port.h"

namespace heddle::provider {

// Where counts are written when the last domain is closed, and on SIGUSR2.
enum class Stats : std::uint8_t { kOff, kStderr, kFile };

struct Options {
    protocol::Options protocol;
    // As it was chosen; protocol.inject_bytes is what settle() makes of it.
    std::optional<std::size_t> inject_size;
    unsigned rails = 1;  // ports for the long messages of an endpoint
    verbs::PathOptions path;
    Stats stats = Stats::kOff;
    std::string stats_file;
};

struct OptionDeclaration {
    const char* name;  // libfabric's: "eager_size" is the variable FI_HEDDLE_EAGER_SIZE
    fi_param_type type;
    const char* initial;   // the default, as text
    const char* possible;  // the possible values, as text
    const char* help;
    bool (*apply)(std::string_view value, Options& options);  // returns false if it is not possible
};

std::span<const OptionDeclaration> option_declarations() noexcept;
std::string variable_of(const OptionDeclaration& declaration);  // "FI_HEDDLE_EAGER_SIZE"

// Applies one value. If the value is not possible, returns false and changes nothing; then
// `message` has the value and the possible ones.
bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options& options,
                  std::string& message);

// Sets what follows from several options, after the last apply_option().
void settle(Options& options) noexcept;

// The table as docs/reference/options.md and man/fi_heddle.7 have it.
std::string options_markdown();
std::string options_manual();

}  // namespace heddle::provider
