// SPDX-License-Identifier: BSD-2-Clause
#include "predict/other_papers.h"

#include <algorithm>
#include <charconv>

#include "experiments/common/reference.h"
#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

constexpr std::uint32_t kFitted[] = {1024, 8192};

BreakEven of_line(std::string_view line) {
    const std::vector<std::string_view> cells = bench::cells_of(line);
    HEDDLE_ASSERT(cells.size() == 3, "the file has three columns");
    BreakEven found;
    std::from_chars(cells[0].data(), cells[0].data() + cells[0].size(), found.bytes);
    found.channel = cells[1];
    std::from_chars(cells[2].data(), cells[2].data() + cells[2].size(), found.paper);
    return found;
}

}  // namespace

std::vector<BreakEven> break_even_counts() {
    std::vector<BreakEven> all;
    std::string_view file = bench::kReuseBreakEven;
    bench::take_line(file);  // its heading
    while (!file.empty())
        all.push_back(of_line(bench::take_line(file)));
    const auto paper = [&](const std::string& channel, std::uint32_t bytes) {
        const auto found = std::ranges::find_if(all, [&](const BreakEven& each) {
            return each.channel == channel && each.bytes == bytes;
        });
        HEDDLE_ASSERT(found != all.end(), "the paper has the values of the fit");
        return found->paper;
    };
    for (BreakEven& each : all) {
        const double low = 1 / paper(each.channel, kFitted[0]),
                     high = 1 / paper(each.channel, kFitted[1]);
        const double slope = (high - low) / (kFitted[1] - kFitted[0]);
        const double inverse = low + slope * (static_cast<double>(each.bytes) - kFitted[0]);
        each.predicted = inverse > 0 ? 1 / inverse : 0;
        each.is_fitted = std::ranges::find(kFitted, each.bytes) != std::end(kFitted);
    }
    return all;
}

}  // namespace heddle::predict
