// SPDX-License-Identifier: BSD-2-Clause
// Text for terminals: wrapped paragraphs, aligned tables, numbers that fit a column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cli_common {

inline constexpr std::size_t kColumns = 80;

// `text` broken at spaces into lines of at most `width` columns, each indented and ended.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width = kColumns);

// Columns aligned, `gap` spaces between; the first line is the heading. A column is aligned to the
// right when all its cells below the heading begin with a digit or are "-".
class TextTable {
public:
    explicit TextTable(std::vector<std::string> heading, std::size_t gap = 2) : gap_(gap) {
        rows_.push_back(std::move(heading));
    }
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    bool empty() const { return rows_.size() == 1; }
    std::string text() const;

private:
    std::size_t gap_;
    std::vector<std::vector<std::string>> rows_;
};

std::string fixed(double value, int decimals);  // 0.25
// 950, 12.3K, 4.56M: at most five characters, powers of 1000 (of 1024 for bytes, with Ki, Mi).
std::string short_number(double value);
std::string short_bytes(std::uint64_t bytes);

// All bytes of a file; nothing if it cannot be read.
std::string file_contents(const std::filesystem::path& file);

// The names of other processes' commands, which may be any bytes, with all but printable ASCII
// replaced: nothing else must reach the terminal, nor JSON.
std::string printable(std::string_view text, std::size_t most);

}  // namespace cli_common
