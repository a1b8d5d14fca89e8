// SPDX-License-Identifier: BSD-2-Clause
// The message-rate figures of ICPADS'18 as sweeps: which points, and what endpoints each is of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/common/reference.h"
#include "experiments/message_rate.h"

namespace heddle::bench {

struct FigurePoint {
    std::string series;   // as the paper calls the curve
    std::uint32_t x = 0;  // threads, or how many share one
    MessageRate rate;
    std::optional<PaperValue> paper;
};

struct Figure {
    std::string name, title, x_name;
    std::vector<FigurePoint> points;  // curve by curve, x growing
};

// "2b", "3", "5", "6", "7", "8a", "8b", "9", "10", "11".
const std::vector<std::string>& figure_names();

// `base`: device, path, threads (at most, where they are x; else in all points) and seconds; what
// the paper says is set here. Powers of two only, that divide the threads where x is a share.
// `name` must be one of figure_names().
Figure figure(std::string_view name, const MessageRate& base);

}  // namespace heddle::bench
