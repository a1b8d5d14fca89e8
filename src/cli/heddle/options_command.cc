// SPDX-License-Identifier: BSD-2-Clause
// heddle options: the environment variables of the libfabric provider, from the table that the
// provider reads them by.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "heddle/detail/assert.h"
#include "provider/options.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
using provider::OptionDeclaration;

void print_table() {
    provider::Options ignored;
    for (const OptionDeclaration& each : provider::option_declarations()) {
        const std::string variable = variable_of(each);
        HEDDLE_ASSERT(variable.starts_with("FI_HEDDLE_"), "libfabric reads no other variables");
        std::printf("%s\n%s%s", variable.c_str(), cli_common::wrapped(each.help, 4).c_str(),
                    cli_common::wrapped(std::string("possible: ") + each.possible, 4).c_str());
        if (each.initial[0] != '\0') std::printf("    default: %s\n", each.initial);
        const char* value = std::getenv(variable.c_str());
        if (value == nullptr || value[0] == '\0') continue;
        std::string message;
        const bool good = apply_option(each, value, ignored, message);
        std::printf("    set to: %s%s\n", value, good ? "" : ", which is not possible");
    }
}

void print_json() {
    Json all = Json::array();
    for (const OptionDeclaration& each : provider::option_declarations()) {
        const char* value = std::getenv(variable_of(each).c_str());
        all.push_back({{"variable", variable_of(each)},
                       {"possible", each.possible},
                       {"default", each.initial},
                       {"help", each.help},
                       {"set", value != nullptr ? Json(value) : Json(nullptr)}});
    }
    std::printf("%s\n", all.dump(2).c_str());
}

}  // namespace

void add_options_command(CLI::App& app, int* status) {
    CLI::App* command =
        app.add_subcommand("options", "Environment variables of the libfabric provider");
    struct Form {
        bool json = false, markdown = false, manual = false;
    };
    auto form = std::make_shared<Form>();
    CLI::Option* json = command->add_flag("--json", form->json, "as JSON");
    CLI::Option* markdown =
        command->add_flag("--markdown", form->markdown, "as docs/reference/options.md has them")
            ->excludes(json);
    command->add_flag("--man", form->manual, "as man/fi_heddle.7 has them")
        ->excludes(json)
        ->excludes(markdown);
    command->callback([form, status] {
        if (form->markdown)
            std::fputs(provider::options_markdown().c_str(), stdout);
        else if (form->manual)
            std::fputs(provider::options_manual().c_str(), stdout);
        else if (form->json)
            print_json();
        else
            print_table();
        *status = 0;
    });
}

}  // namespace heddle::cli
