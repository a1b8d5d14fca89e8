// SPDX-License-Identifier: BSD-2-Clause
// What a user asks the model, and what it answers: a rate with its interval, what limits it, and
// where the question goes beyond what the model was fitted with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "predict/layout.h"
#include "predict/machine_file.h"
#include "predict/simulator.h"

namespace heddle::predict {

struct Question {
    Layout layout;
    std::uint32_t post_list = 32, signal_every = 64, depth = 128;
    std::uint32_t bytes = 2;  // of a message
    bool inlined = true;
    std::uint32_t rows = 0;  // of a kernel, each iteration; 0: a message-rate loop
};

// The kernels of the paper: the message-rate loop, whose rhythm a question has by itself, the
// global array and the stencil, which send messages one by one.
inline constexpr std::array<std::string_view, 3> kKernels{"message-rate", "global-array",
                                                          "stencil"};
// One of kKernels, for the threads that the question has.
void apply_kernel(std::string_view kernel, Question& question);

struct Answer {
    double per_microsecond = 0;
    std::optional<double> low, high;  // where 8 of 10 like points of the paper would be
    Resource limit = Resource::kProcessor;
    double limit_share = 0;             // of the time in which the limiting resource was in use
    std::vector<std::string> warnings;  // where the model extrapolates, a sentence each
    Counts counts;
};

// A sentence for each way in which so many threads, or messages of so many bytes, go beyond what
// the file's values were fitted with or validated.
std::vector<std::string> extrapolations(std::uint64_t threads, std::uint64_t bytes,
                                        const MachineFile& file);
// Workload of a question, on that machine. @throw std::invalid_argument if the question cannot be:
// a share that does not divide the threads, a signaling period above the depth
Workload workload_of(const Question& question, const Machine& machine);
// Takes some 10 ms. @throw as workload_of()
Answer predict(const Question& question, const MachineFile& file);

}  // namespace heddle::predict
