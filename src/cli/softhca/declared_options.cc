// SPDX-License-Identifier: BSD-2-Clause
// Command line flags from the table of environment variables in softhca/base/options.h, and
// `softhca env`, which prints that table.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/common/text.h"
#include "cli/softhca/commands.h"
#include "softhca/base/assert.h"

namespace softhca::cli {
namespace {

const char* environment_value(const OptionDeclaration& declaration) {
    const char* value = std::getenv(declaration.variable);
    return value && value[0] != '\0' ? value : nullptr;
}

void print_table() {
    for (const OptionDeclaration& declaration : option_declarations()) {
        const char* value = environment_value(declaration);
        std::printf("%s  (--%s)\n", declaration.variable, declaration.flag);
        std::fputs(cli_common::wrapped(declaration.help, 4).c_str(), stdout);
        std::fputs(cli_common::wrapped(std::string("possible: ") + declaration.possible, 4).c_str(),
                   stdout);
        if (declaration.initial[0] != '\0') std::printf("    default: %s\n", declaration.initial);
        if (value) std::printf("    set to: %s\n", value);
    }
}

void print_json() {
    nlohmann::ordered_json variables = nlohmann::ordered_json::array();
    for (const OptionDeclaration& declaration : option_declarations()) {
        const char* value = environment_value(declaration);
        variables.push_back(
            {{"variable", declaration.variable},
             {"flag", std::string("--") + declaration.flag},
             {"values",
              std::vector<std::string>(declaration.values.begin(), declaration.values.end())},
             {"possible", declaration.possible},
             {"default", declaration.initial},
             {"help", declaration.help},
             {"set", value ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr)}});
    }
    std::printf("%s\n", variables.dump(2).c_str());
}

}  // namespace

CLI::Option* add_declared_option(CLI::App& app, const OptionDeclaration& declaration,
                                 std::string* text) {
    SOFTHCA_ASSERT(text != nullptr && declaration.flag[0] != '\0' && declaration.help[0] != '\0');
    std::string help = std::string(declaration.help) + " [" + declaration.variable;
    if (!declaration.values.empty()) help += std::string(": ") + declaration.possible;
    if (declaration.initial[0] != '\0') help += std::string("; default ") + declaration.initial;
    return app.add_option(std::string("--") + declaration.flag, *text, help + "]")
        ->type_name(declaration.metavar);
}

std::string option_value(const OptionDeclaration& declaration, const CLI::Option& flag) {
    Options ignored;
    char message[512];
    if (flag.count() > 0) {
        const std::string& value = flag.results().back();
        if (!apply_option(declaration, value, &ignored, message, sizeof message))
            throw CommandError(std::string("--") + declaration.flag + " '" + value +
                                   "' is not possible: it must be " + declaration.possible,
                               kUsage);
        return value;
    }
    const char* value = environment_value(declaration);
    if (!value) {
        [[maybe_unused]] const bool good =
            declaration.initial[0] == '\0' ||
            apply_option(declaration, declaration.initial, &ignored, message, sizeof message);
        SOFTHCA_ASSERT(good, "a default is possible");
        return declaration.initial;
    }
    if (!apply_option(declaration, value, &ignored, message, sizeof message))
        throw CommandError(std::string("in the environment, ") + message, kUsage);
    return value;
}

CLI::Option* add_fabric_option(CLI::App& app, std::string* text) {
    const OptionDeclaration& declaration = declaration_of("SOFTHCA_FABRIC");
    return app
        .add_option("--fabric", *text,
                    std::string("which fabric [") + declaration.variable + "; default " +
                        declaration.initial + "]")
        ->type_name(declaration.metavar);
}

std::string fabric_name(const CLI::Option& flag) {
    return option_value(declaration_of("SOFTHCA_FABRIC"), flag);
}

const OptionDeclaration& declaration_of(const char* variable) {
    for (const OptionDeclaration& declaration : option_declarations())
        if (std::strcmp(declaration.variable, variable) == 0) return declaration;
    throw std::logic_error(std::string(variable) + " is not declared in softhca/base/options.h");
}

void add_env_command(CLI::App& app, int* status) {
    CLI::App* env = app.add_subcommand("env", "list the environment variables");
    auto json = std::make_shared<bool>(false);
    env->add_flag("--json", *json, "as JSON");
    env->callback([json, status] {
        *json ? print_json() : print_table();
        *status = kSuccess;
    });
}

}  // namespace softhca::cli
