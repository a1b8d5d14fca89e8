// SPDX-License-Identifier: BSD-2-Clause
// What the output of all experiments has in common: the machine, the device, the versions; medians
// with their spread; how far a long one is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/common/measure.h"
#include "experiments/common/pinning.h"
#include "heddle/device.h"
#include "heddle/endpoint.h"

namespace heddle::cli {

using bench::median;
using bench::quartile;
using Json = nlohmann::ordered_json;

// The machine that measured: host, processor, cores, versions of the libraries and the kernel.
Json host_facts();
// The device and its UAR kernel; "software_hca" says that its times are no adapter's.
Json device_facts(const DeviceInfo& device);
// Median, quartiles and every sample, of millions of messages a second.
Json sample_facts(const std::vector<double>& samples);
// Millions of messages for each second of processor time, of all threads together.
Json cpu_sample_facts(const std::vector<double>& samples);
Json usage_facts(const Usage& usage);
Json sharing_facts(const Sharing& sharing);  // how many threads share one of each

// A value that is not known is null, or "-".
template <class Number>
Json json_or_null(const std::optional<Number>& value) {
    return value ? Json(*value) : Json(nullptr);
}
std::string text_of(const std::optional<std::uint32_t>& value);
const char* text_of(Path path);
// "mlx5_0 (software HCA)".
std::string title_of(const DeviceInfo& device);
// "16 threads on 2 cores, which take turns; pinned to processors 0, 1".
std::string text_of(const bench::Pinning& pinning);

// A line on standard error: over itself on a terminal, else every ten seconds, so that a log stays
// short and a short experiment says nothing.
class Progress {
public:
    explicit Progress(std::size_t steps);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void step(const std::string& what);  // one more begins

private:
    using Clock = std::chrono::steady_clock;
    std::size_t steps_, begun_ = 0;
    bool terminal_, shown_ = false;
    Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace heddle::cli
