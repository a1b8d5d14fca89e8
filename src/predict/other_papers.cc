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
    BreakEven found;
    const std::size_t first = line.find(','), second = line.find(',', first + 1);
    HEDDLE_ASSERT(second != std::string_view::npos, "the file has three columns");
    std::from_chars(line.data(), line.data() + first, found.bytes);
    found.channel = line.substr(first + 1, second - first - 1);
    std::from_chars(line.data() + second + 1, line.data() + line.size(), found.paper);
    return found;
}

}  // namespace

std::vector<BreakEven> break_even_counts() {
    std::vector<BreakEven> all;
    std::string_view file = bench::kReuseBreakEven;
    file.remove_prefix(file.find('\n') + 1);  // its heading
    while (!file.empty()) {
        const std::size_t end = std::min(file.find('\n'), file.size());
        all.push_back(of_line(file.substr(0, end)));
        file.remove_prefix(std::min(end + 1, file.size()));
    }
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
