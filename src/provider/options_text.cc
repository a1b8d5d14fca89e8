// SPDX-License-Identifier: BSD-2-Clause
// The table of options as the documents have it. The command `heddle options` has this file; the
// provider does not.
#include "provider/options.h"

namespace heddle::provider {
namespace {

// Escapes hyphens and backslashes for troff.
std::string roff(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c == '-')
            out += "\\-";
        else if (c == '\\')
            out += "\\e";
        else
            out += c;
    return out;
}

}  // namespace

std::string options_markdown() {
    std::string text =
        "# Options of the provider\n"
        "\n"
        "The options are environment variables. libfabric's configuration file may set them, too.\n"
        "`fi_info -e` shows them with their values. `heddle options --markdown` prints this page "
        "from the\n"
        "table in `src/provider/options.cc`.\n"
        "\n"
        "| variable | possible | default | meaning |\n"
        "|---|---|---|---|\n";
    for (const OptionDeclaration& each : option_declarations())
        text += "| `" + variable_of(each) + "` | " + each.possible + " | " +
                (each.initial[0] == '\0' ? "" : "`" + std::string(each.initial) + "`") + " | " +
                each.help + " |\n";
    text +=
        "\n"
        "If a value is not possible, the provider reports it with the possible values, on stderr "
        "or in\n"
        "libfabric's log, and uses the default. It reports variables `FI_HEDDLE_...` that are not "
        "in\n"
        "this table, too.\n";
    return text;
}

std::string options_manual() {
    std::string text;
    for (const OptionDeclaration& each : option_declarations()) {
        text += ".TP\n.B " + roff(variable_of(each)) + "\n" + roff(each.help) +
                "\nPossible: " + roff(each.possible) + ".";
        if (each.initial[0] != '\0') text += "\nDefault: " + roff(each.initial) + ".";
        text += "\n";
    }
    return text;
}

}  // namespace heddle::provider
