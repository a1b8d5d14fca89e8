// SPDX-License-Identifier: BSD-2-Clause
// What commands that predict share: the options --kernel and --machine, and the prediction beside a
// rate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "predict/machine_file.h"
#include "predict/prediction.h"

namespace heddle::cli {

inline CLI::Option* add_kernel_option(CLI::App& command, std::string& kernel) {
    return command.add_option("--kernel", kernel, "what the threads run")
        ->check(CLI::IsMember(
            std::vector<std::string>(predict::kKernels.begin(), predict::kKernels.end())));
}

inline CLI::Option* add_machine_option(CLI::App& command, std::string& file) {
    return command.add_option("--machine", file,
                              "machine file; default: ConnectX-4 and 16 cores of ICPADS'18");
}
// What that option says. @throw predict::MachineFileError
inline predict::MachineFile machine_of(const std::string& file) {
    return file.empty() ? predict::connectx4_haswell() : predict::read_machine(file);
}

// Fields of a line: millions of messages a second of so many nodes on the adapter of the paper.
inline Json predicted_fields(std::string_view kernel, Category category, std::uint32_t nodes,
                             std::uint32_t processes, std::uint32_t threads) {
    const predict::MachineFile& machine = predict::connectx4_haswell();
    predict::Question question;
    question.layout = {sharing_of(category, threads), processes, threads, 1};
    predict::apply_kernel(kernel, question);
    return {{"predicted_mmsgs_per_s", nodes * predict::predict(question, machine).per_microsecond},
            {"predicted_for", machine.name}};
}

}  // namespace heddle::cli
