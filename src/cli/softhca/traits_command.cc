// SPDX-License-Identifier: BSD-2-Clause
// `softhca traits`: the traits that --device can name.
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/common/text.h"
#include "cli/softhca/commands.h"
#include "softhca/base/device_traits.h"

namespace softhca::cli {

namespace {

void print_traits() {
    std::puts("Traits of --device (SOFTHCA_DEVICE). Those with a star are part of strict.\n");
    for (const DeviceTraitDeclaration& each : device_trait_declarations()) {
        std::printf("%s%s\n", each.word, each.strict ? " *" : "");
        std::fputs(cli_common::wrapped(each.help, 4).c_str(), stdout);
    }
}

void print_traits_as_json() {
    nlohmann::ordered_json traits = nlohmann::ordered_json::array();
    for (const DeviceTraitDeclaration& each : device_trait_declarations())
        traits.push_back({{"trait", each.word}, {"strict", each.strict}, {"help", each.help}});
    std::printf("%s\n", traits.dump(2).c_str());
}

}  // namespace

void add_traits_command(CLI::App& app, int* status) {
    CLI::App* traits =
        app.add_subcommand("traits", "list what makes the device as harsh as hardware");
    auto json = std::make_shared<bool>(false);
    traits->add_flag("--json", *json, "as JSON");
    traits->callback([json, status] {
        *json ? print_traits_as_json() : print_traits();
        *status = kSuccess;
    });
}

}  // namespace softhca::cli
