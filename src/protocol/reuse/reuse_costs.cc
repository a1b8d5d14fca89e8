// SPDX-License-Identifier: BSD-2-Clause
// Break-even counts, and their file.
#include "protocol/reuse/reuse_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "heddle/detail/assert.h"
#include "protocol/reuse/calibration_file.h"

namespace heddle::protocol {
namespace {

constexpr const char* kReuseCostsLine = "heddle reuse costs 1";

}  // namespace

std::size_t ReuseCosts::index_of(std::size_t bytes) noexcept {
    const auto steps = static_cast<std::size_t>(std::bit_width(bytes / kSmallest));
    const std::size_t index = std::min(steps == 0 ? 0 : steps - 1, kSizes - 1);
    HEDDLE_DEBUG_ASSERT(bytes < kSmallest || size_of(index) <= bytes,
                        "the costs of a larger size would promise too much");
    return index;
}

std::uint32_t ReuseCosts::uses_for(std::size_t bytes, Way way, unsigned percent) const noexcept {
    const Cost& cost = costs[index_of(bytes)];
    if (!cost.pays(way)) return kNever;
    const double wanted = std::ceil(cost.uses(way) * percent / 100);
    HEDDLE_ASSERT(wanted >= 0, "what pays has a break-even");
    if (wanted >= kNever) return kNever;
    return std::max(static_cast<std::uint32_t>(wanted), kFewestUses);
}

std::uint32_t ReuseCosts::fewest_uses(unsigned percent) const noexcept {
    std::uint32_t fewest = kNever;
    for (std::size_t i = 0; i < kSizes; ++i)
        for (const Way way : {kSend, kRing, kOneSided})
            fewest = std::min(fewest, uses_for(size_of(i), way, percent));
    return fewest;
}

std::size_t ReuseCosts::smallest(Way way) const noexcept {
    for (std::size_t i = 0; i < kSizes; ++i)
        if (uses_for(size_of(i), way, 100) != kNever) return size_of(i);
    return ~std::size_t{0};
}

std::filesystem::path ReuseCosts::file(const DeviceInfo& device) {
    return calibration_file("reuse", device);
}

std::string ReuseCosts::text() const {
    std::string text = std::string(kReuseCostsLine) + "\n";
    for (std::size_t i = 0; i < kSizes; ++i) {
        const Cost& cost = costs[i];
        if (cost.registration <= 0) continue;
        text += std::to_string(size_of(i));
        for (const double value : {cost.registration, cost.copy, cost.lookup})
            text += " " + exact(value);
        for (std::size_t way = 0; way < kWays; ++way)
            text += " " + exact(cost.copied[way]) + " " + exact(cost.gathered[way]);
        text += "\n";
    }
    return text;
}

std::optional<ReuseCosts> ReuseCosts::parse(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    if (!std::getline(lines, line) || line != kReuseCostsLine) return std::nullopt;
    ReuseCosts all;
    std::size_t found = 0;
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        words.imbue(std::locale::classic());
        std::size_t size = 0;
        Cost cost;
        words >> size >> cost.registration >> cost.copy >> cost.lookup;
        for (std::size_t way = 0; way < kWays; ++way)
            words >> cost.copied[way] >> cost.gathered[way];
        const auto time = [](double value) { return value >= 0 && value < kMostNanoseconds; };
        const bool good = words && (words >> std::ws).eof() && size >= kSmallest &&
                          size_of(index_of(size)) == size && time(cost.registration) &&
                          time(cost.copy) && time(cost.lookup) &&
                          std::all_of(cost.copied.begin(), cost.copied.end(), time) &&
                          std::all_of(cost.gathered.begin(), cost.gathered.end(), time);
        if (!good) return std::nullopt;
        all.costs[index_of(size)] = cost;
        ++found;
    }
    if (found == 0) return std::nullopt;
    return all;
}

std::optional<ReuseCosts> ReuseCosts::load(const std::filesystem::path& file) {
    return parse(read_calibration(file));
}

bool ReuseCosts::save(const std::filesystem::path& file) const noexcept {
    return write_calibration(file, text());
}

}  // namespace heddle::protocol
