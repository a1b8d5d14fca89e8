// SPDX-License-Identifier: BSD-2-Clause
// `heddle run -n N`: which mpiexec starts the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::cli {

struct Launcher {
    std::vector<std::string> words;  // what stands before the program
    std::string why;                 // this one, in a few words
    bool is_openmpi = false;
};

// The mpiexec of the MPI that the program is linked with; of a program that is linked with none (a
// script, say), mpiexec in PATH, then srun within a job of Slurm's, then one that is installed in
// `venvs` (as `make demo` does). Throws softhca::cli::ProgramError, which names what was tried.
Launcher find_launcher(unsigned ranks, const std::string& program,
                       const std::filesystem::path& venvs);

}  // namespace heddle::cli
