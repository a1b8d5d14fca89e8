// SPDX-License-Identifier: BSD-2-Clause
// Text for terminals.
#include "cli/common/text.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "heddle/detail/assert.h"

namespace cli_common {
namespace {

bool is_numeric(const std::string& cell) {
    return cell == "-" || (!cell.empty() && cell[0] >= '0' && cell[0] <= '9');
}

std::string scaled(double value, double step, const char* const* units, std::size_t count) {
    HEDDLE_ASSERT(value >= 0 && count != 0, "counts and rates are not negative");
    std::size_t unit = 0;
    // What would be rounded up to a full step belongs to the next unit.
    while (value >= step - 0.5 && unit + 1 < count) {
        value /= step;
        ++unit;
    }
    const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    char text[64];
    std::snprintf(text, sizeof text, "%.*f%s", decimals, value, units[unit]);
    return text;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
    const std::size_t room = width > indent + 20 ? width - indent : 20;
    std::string lines;
    while (!text.empty()) {
        std::size_t end = text.size();
        if (end > room) {
            end = text.rfind(' ', room);
            if (end == std::string_view::npos || end == 0)
                end = std::min(text.find(' '), text.size());
        }
        lines += std::string(indent, ' ') + std::string(text.substr(0, end)) + "\n";
        HEDDLE_ASSERT(end != 0 || text.front() == ' ', "each line takes something of the text");
        text.remove_prefix(end < text.size() ? end + 1 : end);
    }
    return lines;
}

std::string TextTable::text() const {
    const std::size_t columns = rows_[0].size();
    std::vector<std::size_t> widths(columns, 0);
    std::vector<bool> right(columns, rows_.size() > 1);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        HEDDLE_ASSERT(rows_[r].size() == columns, "each row has the columns of the heading");
        for (std::size_t c = 0; c < columns; ++c) {
            widths[c] = std::max(widths[c], rows_[r][c].size());
            if (r > 0 && !is_numeric(rows_[r][c])) right[c] = false;
        }
    }
    std::string lines;
    for (const auto& row : rows_) {
        std::string line;
        for (std::size_t c = 0; c < columns; ++c) {
            const std::string fill(widths[c] - row[c].size(), ' ');
            if (c > 0) line += std::string(gap_, ' ');
            line += right[c] ? fill + row[c] : row[c] + fill;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        lines += line + "\n";
    }
    return lines;
}

std::string short_number(double value) {
    static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
    return scaled(value, 1000, kUnits, std::size(kUnits));
}

std::string short_bytes(std::uint64_t bytes) {
    static constexpr const char* kUnits[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    return scaled(static_cast<double>(bytes), 1024, kUnits, std::size(kUnits));
}

std::string file_contents(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

std::string fixed(double value, int decimals) {
    HEDDLE_ASSERT(decimals >= 0 && decimals <= 9, "a table has room for so many digits");
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

std::string printable(std::string_view text, std::size_t most) {
    std::string result(text.substr(0, most));
    for (char& c : result)
        if (c < 0x20 || c > 0x7e) c = '?';
    return result;
}

}  // namespace cli_common
