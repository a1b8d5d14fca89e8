// SPDX-License-Identifier: BSD-2-Clause
// A job that is started, timed and, if it does not end, ended with all its processes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/heddle/mpi_switches.h"

namespace heddle::cli {

struct JobOrder {
    std::vector<std::string> words;  // words[0] is looked for in PATH
    std::vector<Setting> set;        // environment; a value of the user's is replaced only by
                                     // one that is `always`
    std::vector<std::string> unset;  // variables
    std::string output;              // file for stdout and stderr, which is emptied first
    double patience = 0;             // seconds; then the job is ended
    bool counts_threads = false;     // takes some processor time: not for a run that is timed
};

struct TimedRun {
    double seconds = 0;
    int status = 0;  // as waitpid() has it
    bool out_of_patience = false;
    // With counts_threads, of each process: threads that computed about as long as the busiest.
    std::map<int, unsigned> busy_threads;

    bool succeeded() const { return status == 0 && !out_of_patience; }
    // "exit status 3", "signal 11 (Segmentation fault)", "not ended after 600 s".
    std::string end() const;
};

// From now on the processes that a job leaves behind become children of this one, and SIGINT,
// SIGTERM and SIGHUP end the job, so that run_job() throws Interrupted.
void prepare_for_jobs();

struct Interrupted {
    int signal;
};

// Runs a job with /dev/null for its stdin. Throws cli_common::ProgramError if there are no more
// processes, and Interrupted. For one thread.
TimedRun run_job(const JobOrder& order);

}  // namespace heddle::cli
