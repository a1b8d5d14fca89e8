// SPDX-License-Identifier: BSD-2-Clause
// What the papers measured (src/experiments/reference), compiled in. Shown beside what is measured
// here, never mixed with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::bench {

struct PaperValue {
    double mmsgs_per_s = 0, half_error = 0;
};

// The value of ICPADS'18 at point x of a curve of a figure, by their names in icpads18.csv.
std::optional<PaperValue> paper_value(std::string_view figure, std::string_view series,
                                      std::uint32_t x);

// The first line of `rest`, which loses it.
std::string_view take_line(std::string_view& rest);
// The cells of a line of such a file; none has a comma in it.
std::vector<std::string_view> cells_of(std::string_view line);

// The file itself, from its heading on; made by src/experiments/CMakeLists.txt.
extern const std::string_view kIcpads18;
// icpads18-applications.csv: figures 12 and 14.
extern const std::string_view kIcpads18Applications;
// reuse-break-even.csv.
extern const std::string_view kReuseBreakEven;

}  // namespace heddle::bench
