// SPDX-License-Identifier: BSD-2-Clause
// Every point that ICPADS'18 plots, as a workload of the model: the sweeps that `heddle bench`
// runs, the global array's writes (figure 12) and the stencil (figure 14).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/message_rate.h"
#include "predict/layout.h"
#include "predict/machine.h"
#include "predict/revision.h"
#include "predict/workload.h"

namespace heddle::predict {

inline constexpr std::uint32_t kPaperThreads = 16;  // of a node, in most figures

struct Point {
    std::string figure, curve, x;
    Layout layout;
    Workload work;       // without threads: these come from the layout and a machine
    double nodes = 1;    // that the paper's rate counts together
    double atomics = 0;  // lock-prefixed operations for each message besides
    double paper = 0;    // millions of messages a second

    PointName name() const { return {figure, curve, x}; }
    // The paper plots some configurations more than once. Protection domains and memory regions
    // make no difference to the model.
    bool is_configured_as(const Point& other) const;
};

// This experiment, without its name and the paper's value.
Point point_of(const bench::MessageRate& rate);
// Millions of messages a second that this experiment would have. Nothing if the messages are longer
// than the machine was fitted with.
std::optional<double> predicted(const bench::MessageRate& rate, const MachineFile& file);

// Figures 2b, 3, 5, 7 to 12 and 14, in this order. Figure 6 has no values.
std::vector<Point> paper_points();

// What the point's threads do, on that machine.
Workload workload_of(const Point& point, const Machine& machine);
// Millions of messages a second on that machine.
double predicted(const Point& point, const Machine& machine);

}  // namespace heddle::predict
