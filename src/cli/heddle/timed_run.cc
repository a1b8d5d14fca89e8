// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/timed_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "cli/common/program.h"
#include "cli/common/text.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using cli_common::file_contents;

using JobClock = std::chrono::steady_clock;
using cli_common::ProgramError;

constexpr int kLookEvery = 100;            // ms
constexpr double kTimeToEnd = 5;           // seconds between SIGTERM and SIGKILL
constexpr unsigned long kLeastTicks = 20;  // of a thread that computes; 0.2 s on Linux
constexpr unsigned long kBusyShare = 4;    // at least a quarter of the busiest thread's time

volatile std::sig_atomic_t job_signal = 0;

double seconds_since(JobClock::time_point begin) {
    return std::chrono::duration<double>(JobClock::now() - begin).count();
}

struct ProcessStat {
    std::string name;
    int parent = 0;
    unsigned long ticks = 0;  // of processor time, user and system
};

// proc_pid_stat(5). The name, in parentheses, may contain anything.
std::optional<ProcessStat> read_stat(const std::filesystem::path& file) {
    const std::string line = file_contents(file);
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (open == std::string::npos || close == std::string::npos) return std::nullopt;
    ProcessStat stat{line.substr(open + 1, close - open - 1), 0, 0};
    std::istringstream rest(line.substr(close + 1));
    std::string state, skipped;
    unsigned long user = 0, system = 0;
    rest >> state >> stat.parent;
    for (int field = 5; field < 14; ++field)
        rest >> skipped;
    rest >> user >> system;
    if (!rest) return std::nullopt;
    stat.ticks = user + system;
    return stat;
}

// Processes that this one has started, and theirs.
std::vector<int> descendants() {
    std::map<int, int> parents;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (const auto stat = read_stat(entry.path() / "stat"))
            parents[std::stoi(name)] = stat->parent;
    }
    std::vector<int> found;
    for (const auto& [pid, parent] : parents)
        for (auto up = parents.find(pid); up != parents.end(); up = parents.find(up->second))
            if (up->second == ::getpid()) {
                found.push_back(pid);
                break;
            }
    return found;
}

// Not those of softhca and of heddle, which work for all.
unsigned busy_threads_of(int pid) {
    std::vector<unsigned long> ticks;
    std::error_code error;
    const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& entry : std::filesystem::directory_iterator(tasks, error)) {
        const auto stat = read_stat(entry.path() / "stat");
        if (stat && !stat->name.starts_with("softhca") && !stat->name.starts_with("heddle"))
            ticks.push_back(stat->ticks);
    }
    const unsigned long most = ticks.empty() ? 0 : *std::max_element(ticks.begin(), ticks.end());
    return static_cast<unsigned>(std::count_if(ticks.begin(), ticks.end(), [&](unsigned long each) {
        return each >= kLeastTicks && each * kBusyShare >= most;
    }));
}

void count_threads(std::map<int, unsigned>& busy) {
    for (const int pid : descendants()) {
        const unsigned threads = busy_threads_of(pid);
        unsigned& most = busy[pid];
        most = std::max(most, threads);
    }
}

[[noreturn]] void become_job(const JobOrder& order) {
    HEDDLE_ASSERT(!order.words.empty() && !order.output.empty(), "a job has a program and a file");
    ::setpgid(0, 0);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        std::signal(signal, SIG_DFL);
    for (const std::string& variable : order.unset)
        ::unsetenv(variable.c_str());
    for (const Setting& setting : order.set)
        ::setenv(setting.variable.c_str(), setting.value.c_str(), setting.always ? 1 : 0);
    const int in = ::open("/dev/null", O_RDONLY);
    const int out = ::open(order.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : order.words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const int reason = errno;
    std::fprintf(stderr, "%s: %s\n", arguments[0], std::strerror(reason));
    std::_Exit(reason == ENOENT ? cli_common::kNotFound : cli_common::kCannotExecute);
}

// Waits for the end of the child, up to so many milliseconds.
bool ended(pid_t child, int pidfd, int milliseconds, int& status) {
    HEDDLE_ASSERT(child > 0 && milliseconds > 0, "the wait has a child and an end");
    if (pidfd >= 0) {
        pollfd ready{pidfd, POLLIN, 0};
        ::poll(&ready, 1, milliseconds);
    } else {
        ::usleep(1000);  // a kernel before 5.3
    }
    return ::waitpid(child, &status, WNOHANG) == child;
}

// Launchers put ranks into sessions of their own, so the group is not all of the job.
void end_job(pid_t child, int pidfd, int& status) {
    HEDDLE_ASSERT(child > 1, "any other number would be a signal to more than the job");
    ::kill(-child, SIGTERM);
    const JobClock::time_point begin = JobClock::now();
    bool is_over = false;
    while (!is_over && seconds_since(begin) < kTimeToEnd)
        is_over = ended(child, pidfd, kLookEvery, status);
    for (;;) {
        for (const int pid : descendants())
            ::kill(pid, SIGKILL);
        int other = 0;
        const pid_t gone = ::waitpid(-1, &other, 0);
        if (gone == child) status = other;
        if (gone < 0 && errno == ECHILD) return;
    }
}

}  // namespace

std::string TimedRun::end() const {
    HEDDLE_ASSERT(out_of_patience || WIFEXITED(status) || WIFSIGNALED(status), "the job is over");
    char text[160];
    if (out_of_patience) {
        std::snprintf(text, sizeof text, "not ended after %.0f s (--patience)", seconds);
    } else if (WIFSIGNALED(status)) {
        std::snprintf(text, sizeof text, "signal %d (%s)", WTERMSIG(status),
                      ::strsignal(WTERMSIG(status)));
    } else if (const int code = WEXITSTATUS(status); code > 128 && code < 128 + NSIG) {
        std::snprintf(text, sizeof text, "exit status %d, which says signal %d (%s)", code,
                      code - 128, ::strsignal(code - 128));
    } else {
        std::snprintf(text, sizeof text, "exit status %d", code);
    }
    return text;
}

void prepare_for_jobs() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action {};
        action.sa_handler = [](int number) { job_signal = number; };
        ::sigaction(signal, &action, nullptr);  // without SA_RESTART: poll() returns
    }
}

TimedRun run_job(const JobOrder& order) {
    HEDDLE_ASSERT(order.patience > 0, "a job has some time");
    std::fflush(nullptr);
    TimedRun run;
    const JobClock::time_point begin = JobClock::now();
    const pid_t child = ::fork();
    if (child < 0)
        throw ProgramError(cli_common::kRunFailed,
                           std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) become_job(order);
    ::setpgid(child, child);  // the child does the same; the first of the two has effect
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
    while (!ended(child, pidfd, kLookEvery, run.status)) {
        run.out_of_patience = seconds_since(begin) > order.patience;
        if (job_signal != 0 || run.out_of_patience) {
            end_job(child, pidfd, run.status);
            break;
        }
        if (order.counts_threads) count_threads(run.busy_threads);
    }
    run.seconds = seconds_since(begin);
    if (pidfd >= 0) ::close(pidfd);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // what the job has left behind, and has ended
    }
    if (job_signal != 0) throw Interrupted{job_signal};
    return run;
}

}  // namespace heddle::cli
