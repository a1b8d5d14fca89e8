// SPDX-License-Identifier: BSD-2-Clause
// The name of a run record's file: see record_path.h.
#include "softhca/record/record_path.h"

#include <string.h>

#include <cstdio>

#include "softhca/base/assert.h"

namespace softhca::record {

bool expand_path(std::string_view file, std::string_view directory, int pid, char* path,
                 std::size_t size) noexcept {
    SOFTHCA_ASSERT(pid > 0 && path != nullptr && size != 0);
    char number[16];
    const int digits = snprintf(number, sizeof number, "%d", pid);
    std::size_t length = 0;
    const auto put = [&](std::string_view text) {
        if (length + text.size() >= size) return false;
        memcpy(path + length, text.data(), text.size());
        length += text.size();
        path[length] = '\0';
        return true;
    };
    const std::string_view process(number, static_cast<std::size_t>(digits));
    if (!directory.empty() && !file.starts_with('/') && !(put(directory) && put("/"))) return false;
    const bool names_process = file.find("%p") != std::string_view::npos;
    while (!file.empty()) {
        const std::size_t at = file.find("%p");
        if (!put(file.substr(0, at))) return false;
        if (at == std::string_view::npos) break;
        if (!put(process)) return false;
        file.remove_prefix(at + 2);
    }
    return names_process || (put(".") && put(process));
}

}  // namespace softhca::record
