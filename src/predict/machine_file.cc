// SPDX-License-Identifier: BSD-2-Clause
#include "predict/machine_file.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "predict/embedded.h"
#include "predict/toml_reader.h"

namespace heddle::predict {
namespace {

void read_intervals(MachineFile& file, const toml::table& table, const std::string& where) {
    const toml::table* intervals = table["interval"].as_table();
    if (intervals == nullptr) return;
    for (const auto& [key, node] : *intervals) {
        const std::string owner = "interval." + std::string(key.str());
        const toml::table* entry = node.as_table();
        if (entry == nullptr) fail_at(where, &node, owner + " has to be a table");
        const double points = number_at(*entry, "points", where, owner);
        const MachineFile::Interval interval{number_at(*entry, "low", where, owner),
                                             number_at(*entry, "high", where, owner),
                                             static_cast<std::uint32_t>(std::min(points, 1e9))};
        if (interval.low > interval.high) fail_at(where, entry, owner + ": 'low' is above 'high'");
        file.intervals.emplace(key.str(), interval);
    }
}

std::string quoted(const std::string& text) {
    std::ostringstream out;
    out << toml::value<std::string>(text);
    return out.str();
}

}  // namespace

MachineFile parse_machine(std::string_view text, const std::string& where) {
    const toml::table table = parse_table(text, where);
    MachineFile file;
    read_head(file, table, where);
    read_parameters(file, table, "parameter", where);
    for (const Parameter& parameter : kParameters)
        if (!file.origins.contains(parameter.name))
            fail_at(where, nullptr,
                    "it has no table [parameter." + std::string(parameter.name) + "]");
    read_intervals(file, table, where);
    return file;
}

MachineFile read_machine(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) throw MachineFileError("cannot read '" + path + "'");
    return parse_machine(text.str(), path);
}

std::string to_toml(const MachineFile& file) {
    std::string text = "schema = 1\nname = " + quoted(file.name) +
                       "\nthreads = " + std::to_string(file.threads) +
                       "\nbytes = " + std::to_string(file.bytes) +
                       "\nmeasured = " + (file.is_measured ? "true" : "false") + "\n";
    for (const Parameter& parameter : kParameters) {
        const MachineFile::Origin& origin = file.origins.at(std::string(parameter.name));
        char numbers[160];
        std::snprintf(numbers, sizeof(numbers), "value = %.6g\nlow = %.6g\nhigh = %.6g\n",
                      file.machine.*parameter.value, origin.low, origin.high);
        text += "\n[parameter." + std::string(parameter.name) + "]\n" + numbers + "unit = \"" +
                std::string(parameter.unit) + "\"\nsource = " + quoted(origin.source) + "\n";
    }
    for (const auto& [kind, interval] : file.intervals) {
        char numbers[120];
        std::snprintf(numbers, sizeof(numbers), "low = %.4g\nhigh = %.4g\npoints = %u\n",
                      interval.low, interval.high, interval.points);
        text += "\n[interval." + kind + "]\n" + numbers;
    }
    return text;
}

const MachineFile& connectx4_haswell() {
    static const MachineFile file = parse_machine(kConnectx4Haswell, "connectx4-haswell.toml");
    return file;
}

}  // namespace heddle::predict
