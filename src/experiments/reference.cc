// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/common/reference.h"

#include <algorithm>
#include <string>

#include "heddle/detail/assert.h"

namespace heddle::bench {

std::string_view take_line(std::string_view& rest) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? rest.size() : line.size() + 1);
    return line;
}

std::vector<std::string_view> cells_of(std::string_view line) {
    std::vector<std::string_view> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
        const std::size_t end = std::min(line.find(',', begin), line.size());
        cells.push_back(line.substr(begin, end - begin));
        begin = end + 1;
    }
    return cells;
}

std::optional<PaperValue> paper_value(std::string_view figure, std::string_view series,
                                      std::uint32_t x) {
    std::string key(figure);
    key.append(",").append(series).append(",").append(std::to_string(x)).append(",");
    std::string_view rest = kIcpads18;
    while (!rest.empty()) {
        const std::string_view line = take_line(rest);
        if (!line.starts_with(key)) continue;
        const std::string values(line.substr(key.size()));  // "142.47,0.05"
        std::size_t used = 0;
        HEDDLE_ASSERT(values.find(',') != std::string::npos, "a value has its error beside it");
        PaperValue value;
        value.mmsgs_per_s = std::stod(values, &used);
        value.half_error = std::stod(values.substr(used + 1));
        return value;
    }
    return std::nullopt;
}

}  // namespace heddle::bench
