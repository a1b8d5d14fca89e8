// SPDX-License-Identifier: BSD-2-Clause
// Lines that processes of heddle write at their end, made up.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/heddle/job_counts.h"

namespace heddle::cli {

using Json = nlohmann::ordered_json;

// What a process writes at its end; all counters are zero.
inline Json idle_process(int pid) {
    Json line{{"provider", "heddle"},  {"pid", pid},     {"device", "mlx5_0"}, {"software", true},
              {"category", "dynamic"}, {"rndv", "rget"}, {"when", "end"}};
    for (const provider::StatName& name : provider::kStatNames)
        line[name.key] = 0;
    line["copied_by_size"] = line["gathered_by_size"] = std::vector<int>(21, 0);
    line["buffers_by_uses"] = std::vector<int>(17, 0);
    line["tuples_declined"] = line["tuples_ended"] = Json::object();
    return line;
}

inline JobCounts job_of(const Json& line) { return job_counts(line.dump() + "\n"); }

inline Json copying_process() {
    Json line = idle_process(1);
    line["eager"] = line["copied_by_size"][12] = 4000;
    line["received"] = 4000;
    line["reuse_entries"] = 2048;
    line["buffers_by_uses"][7] = 5;  // 64 to 127 uses
    line["endpoints"] = 1;
    return line;
}

}  // namespace heddle::cli
