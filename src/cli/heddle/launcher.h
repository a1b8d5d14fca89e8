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
    std::vector<std::string> refused;  // what was nearer, and why it is not started
};

// What a program prints to its standard output. Empty: nothing, or it cannot be started. No shell
// reads the words.
std::string output_of(std::vector<std::string> words);

// This program's file, and the folder that it is in. Throw cli_common::ProgramError.
std::filesystem::path own_path();
std::filesystem::path own_folder();
// The folder of this installation's libheddle-fi.so: ../lib from here in the build tree, else as
// installed. Throws cli_common::ProgramError, which names where it was looked for.
std::string provider_folder();
// Beside bin/ in the build tree: `make demo` installs an MPI there.
std::filesystem::path demo_venvs();

// The mpiexec of the MPI that the program is linked with. For a Python program, the one that mpi4py
// is linked with, or the one in the interpreter's virtual environment. Else mpiexec in PATH, then
// srun within a job of Slurm's, then one that is installed in `venvs` (as `make demo` does). What
// PATH does not name is started only if why_not_trusted() has nothing against it. Throws
// cli_common::ProgramError, which names what was tried.
Launcher find_launcher(unsigned ranks, const std::string& program,
                       const std::filesystem::path& venvs);

}  // namespace heddle::cli
