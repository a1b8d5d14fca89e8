// SPDX-License-Identifier: BSD-2-Clause
// The table of options as documents have it. Not part of the provider: of the command that writes
// them.
#include "provider/options.h"

namespace heddle::provider {
namespace {

// Hyphens that are to be typed, and nothing at the start of a line that troff would obey.
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
        "Environment variables, which libfabric's configuration file may set as well. `fi_info -e` "
        "shows them\n"
        "with their values. This page is what `heddle options --markdown` prints: the table is in "
        "`src/provider/options.cc`.\n"
        "\n"
        "| variable | possible | default | meaning |\n"
        "|---|---|---|---|\n";
    for (const OptionDeclaration& each : option_declarations())
        text += "| `" + variable_of(each) + "` | " + each.possible + " | " +
                (each.initial[0] == '\0' ? "" : "`" + std::string(each.initial) + "`") + " | " +
                each.help + " |\n";
    text +=
        "\n"
        "A value that is not possible is reported on stderr (or in libfabric's log), with what is "
        "possible, and the\n"
        "default is used. So is a variable `FI_HEDDLE_...` that is none of these.\n";
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
