// SPDX-License-Identifier: BSD-2-Clause
// What can be predicted of the buffer-reuse paper (Exploiting application buffer reuse to improve
// MPI small message transfer protocols): how often a buffer has to be used until registering it
// pays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::predict {

// A registration of cost R is repaid by n messages that save C(size) - V each, the copy's cost less
// what sending without a copy takes more. A copy costs a + b * size, so 1/n is a straight line in
// the size.
struct BreakEven {
    std::string channel;  // of the paper: "ring", "send" or "one-sided"
    std::uint32_t bytes = 0;
    double paper = 0;      // uses
    double predicted = 0;  // by the line through the channel's values at 1 and at 8 KiB
    bool is_fitted = false;

    double error() const { return predicted / paper - 1; }
};

// All values of the paper, by channel and size.
std::vector<BreakEven> break_even_counts();

}  // namespace heddle::predict
