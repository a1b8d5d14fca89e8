// SPDX-License-Identifier: BSD-2-Clause
// The text of `--help` for both commands, `softhca` and `heddle`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace cli_common {

// CLI11's help, but wrapped to a terminal of 80 columns, with the possible values and the default
// of an option in brackets where its description does not name them.
class HelpFormatter : public CLI::Formatter {
public:
    std::string make_description(const CLI::App* app) const override;
    std::string make_usage(const CLI::App* app, std::string name) const override;
    std::string make_option(const CLI::Option* option, bool positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
    std::string make_subcommand(const CLI::App* command) const override;
};

// "heddle bench stencil": a command with those above it.
std::string full_name(const CLI::App& app);

}  // namespace cli_common
