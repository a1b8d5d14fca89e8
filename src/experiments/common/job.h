// SPDX-License-Identifier: BSD-2-Clause
// Processes that mpiexec or srun has started. The program is not an MPI program: rank and size are
// those that the launcher puts into the environment, and the processes meet in a directory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "experiments/common/team.h"

namespace heddle::bench {

struct Job {
    std::uint32_t rank = 0, size = 1;
    std::string id;  // distinguishes it from other jobs that run now
};

// The job this process belongs to, if it has more than one process: by PMI_RANK and PMI_SIZE
// (MPICH, Intel MPI), OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), or PMIX_RANK and SLURM_NTASKS.
std::optional<Job> job_of_environment();

// Where the processes of a job meet unless --exchange says where: below $TMPDIR, or /tmp. Made, for
// this user alone, if it is not there. Throws TeamError.
std::string default_exchange(const Job& job);

// Meets the others in that directory, which they must all see. Throws TeamError when they do not
// come in time. What earlier jobs left there does no harm.
std::unique_ptr<Team> meet_in(const std::string& directory, const Job& job, Seconds patience);

}  // namespace heddle::bench
