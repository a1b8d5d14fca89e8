// SPDX-License-Identifier: BSD-2-Clause
// The commands of `heddle`, each in a file of its own: add_X_command declares it; when the command
// line names it, CLI11 calls back and `*status` becomes its exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace heddle::cli {

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// `command` is what follows the options of `heddle run`. Its exit statuses are those of `softhca
// run`.
void add_run_command(CLI::App& app, const std::vector<std::string>& command, int* status);
// The same of `heddle compare`; 1 also if a run has failed.
void add_compare_command(CLI::App& app, const std::vector<std::string>& command, int* status);
void add_info_command(CLI::App& app, int* status);
void add_doctor_command(CLI::App& app, int* status);
void add_plan_command(CLI::App& app, int* status);
void add_predict_command(CLI::App& app, int* status);
void add_bench_command(CLI::App& app, int* status);
void add_options_command(CLI::App& app, int* status);
void add_calibrate_command(CLI::App& app, int* status);
void add_check_hardware_command(CLI::App& app, int* status);
void add_top_command(CLI::App& app, int* status);
void add_report_commands(CLI::App& app, int* status);  // reproduce, report
// Below `bench`: global-array and stencil.
void add_kernel_commands(CLI::App& bench, int* status);
// reuse-pingpong, -spectrum, -put, -get, -bcast, -scatter.
void add_reuse_commands(CLI::App& bench, int* status);
void add_reuse_never_command(CLI::App& bench, int* status);
void add_overlap_command(CLI::App& bench, int* status);
// tuple-latency, -late, -many, -wildcards.
void add_tuple_commands(CLI::App& bench, int* status);

}  // namespace heddle::cli
