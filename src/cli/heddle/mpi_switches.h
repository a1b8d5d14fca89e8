// SPDX-License-Identifier: BSD-2-Clause
// The environment variables that put an unmodified MPI library on heddle. Each library has names of
// its own, so those of all can be set at once.
#pragma once

#include <string>
#include <vector>

namespace heddle::cli {

enum class Mpi { kAuto, kMpich, kOpenMpi, kIntel };

struct Setting {
    std::string variable, value;
    // Ours, or asked for by a flag: replaces what is there. Else what the user has set stays.
    bool always = false;
};

struct Wishes {
    Mpi mpi = Mpi::kAuto;      // kAuto: the variables of all
    bool within_node = false;  // also what an MPI would move by shared memory of its own
    unsigned threads = 1;      // that call MPI at once
    std::string program;       // what is to be started: beside it may be Intel MPI's libraries
    std::string library_path;  // LD_LIBRARY_PATH as it is
};

std::vector<Setting> mpi_settings(const Wishes& wishes);

// For Open MPI's launcher, which else refuses: a software HCA is there to try things on a laptop.
std::vector<Setting> more_ranks_than_processors();

}  // namespace heddle::cli
