// SPDX-License-Identifier: BSD-2-Clause
// Reads the options of this process from the environment, or else from libfabric's configuration.
#include "provider/parameters.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "heddle/detail/assert.h"
#include "provider/host.h"
#include "verbs/local_port.h"

namespace heddle::provider {
namespace {

// Never destroyed, since programs end MPI, and so close domains, in exit handlers.
Options& values = *new Options;

// Sets `text` to the value in libfabric's configuration file. Returns false if it has none.
bool configured(const OptionDeclaration& declaration, std::string& text) {
    if (host().param_get == nullptr) return false;
    switch (declaration.type) {
        case FI_PARAM_STRING: {
            char* value = nullptr;
            if (host().param_get(&self(), declaration.name, &value) != 0 || value == nullptr)
                return false;
            text = value;
            return true;
        }
        case FI_PARAM_SIZE_T: {
            std::size_t value = 0;
            if (host().param_get(&self(), declaration.name, &value) != 0) return false;
            text = std::to_string(value);
            return true;
        }
        default: {  // int and bool
            int value = 0;
            if (host().param_get(&self(), declaration.name, &value) != 0) return false;
            text = std::to_string(value);
            return true;
        }
    }
}

// Reports variables with unknown names, since a misspelt name would silently do nothing.
void complain_of_unknown() {
    constexpr std::string_view kPrefix = "FI_HEDDLE_";
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
        const std::string_view entry = *each;
        if (entry.substr(0, kPrefix.size()) != kPrefix) continue;
        const std::string name(entry.substr(0, entry.find('=')));
        bool known = false;
        for (const OptionDeclaration& declaration : option_declarations())
            known = known || variable_of(declaration) == name;
        if (!known)
            complain("%s is no option of this provider: `fi_info -e` lists the options",
                     name.c_str());
    }
}

}  // namespace

void read_parameters() {
    for (const OptionDeclaration& declaration : option_declarations()) {
        if (host().param_define != nullptr) {
            const std::string help =
                std::string(declaration.help) + " Possible: " + declaration.possible +
                ". Default: " + (declaration.initial[0] != '\0' ? declaration.initial : "none");
            host().param_define(&self(), declaration.name, declaration.type, "%s", help.c_str());
        }
        const char* given = std::getenv(variable_of(declaration).c_str());
        std::string text = given != nullptr ? given : "";
        if (given == nullptr) configured(declaration, text);
        HEDDLE_ASSERT(declaration.name[0] != '\0' && declaration.help[0] != '\0');
        std::string message;
        if (!text.empty() && !apply_option(declaration, text, values, message))
            complain("%s; the default is used", message.c_str());
    }
    settle(values);
    verbs::take_path_options(values.path);
    complain_of_unknown();
}

const Options& options() noexcept { return values; }

}  // namespace heddle::provider
