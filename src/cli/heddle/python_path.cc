// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/python_path.h"

#include <cstdlib>
#include <sstream>

namespace heddle::cli {

std::string absolute_python_path() {
    const char* const all = std::getenv("PYTHONPATH");
    std::istringstream entries(all != nullptr ? all : "");
    std::string kept;
    for (std::string entry; std::getline(entries, entry, ':');)
        if (entry.starts_with('/')) kept += (kept.empty() ? "" : ":") + entry;
    return kept;
}

}  // namespace heddle::cli
