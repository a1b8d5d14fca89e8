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
    // True: the setting replaces a value that is there. False: the user's value stays.
    bool always = false;
};

struct MpiRequest {
    Mpi mpi = Mpi::kAuto;      // kAuto: the variables of all
    bool within_node = false;  // also what an MPI would move by shared memory of its own
    unsigned threads = 1;      // threads that call MPI at once
    std::string program;       // the program to start: Intel MPI's libraries may be beside it
    std::string library_path;  // LD_LIBRARY_PATH as it is
};

std::vector<Setting> mpi_settings(const MpiRequest& request);

// The loader puts it in front of other libraries: see src/yield/sched_yield.cc.
inline constexpr const char* kYieldLibrary = "libheddle-yield.so";
// What has the loader do so with that in `folder`. None: it is not there, or the loader would take
// its path for several.
std::vector<Setting> yield_settings(const std::string& folder);

// For Open MPI's launcher, which refuses more ranks than processors without them. Users of a
// software HCA try many ranks on a laptop.
std::vector<Setting> more_ranks_than_processors();

}  // namespace heddle::cli
