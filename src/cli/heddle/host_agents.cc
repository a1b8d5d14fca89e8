// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/host_agents.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> split_words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

// For the shell that sshd starts.
std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word)
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::vector<std::string> own_options() {
    std::vector<std::string> words;
    for (char** each = environ; *each != nullptr; ++each)
        if (std::string_view(*each).starts_with("FI_HEDDLE_")) words.emplace_back(*each);
    return words;
}

// The last line that is not empty.
std::string last_line(const std::string& text) {
    std::istringstream lines(text);
    std::string last;
    for (std::string line; std::getline(lines, line);)
        if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
    return last;
}

void close_pipe(int& fd) noexcept {
    if (fd >= 0) ::close(std::exchange(fd, -1));
}

}  // namespace

RemoteShell remote_shell(const std::string& option, HostSource source, unsigned timeout_s) {
    RemoteShell shell;
    shell.words = split_words(option);
    for (const char* name : {"HEDDLE_SSH", "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC",
                             "I_MPI_HYDRA_BOOTSTRAP_EXEC"})
        if (const char* value = std::getenv(name); value != nullptr && shell.words.empty())
            shell.words = split_words(value);
    if (!shell.words.empty()) return shell;
    if (source == HostSource::kSlurm) {
        // --overlap: the step shares the processors of the job's other steps. --export: srun in a
        // batch script may have been forbidden to pass the environment on.
        shell.words = {"srun",    "--nodes=1",    "--ntasks=1", "--overlap",
                       "--quiet", "--export=ALL", "--nodelist"};
        shell.is_slurm = true;
        return shell;
    }
    shell.words = {"ssh", "-o", "BatchMode=yes", "-o",
                   "ConnectTimeout=" + std::to_string(timeout_s)};
    return shell;
}

HostAgent::HostAgent(const RemoteShell& shell, std::string host,
                     const std::vector<std::string>& words)
    : host_(std::move(host)) {
    HEDDLE_ASSERT(!words.empty() && !shell.words.empty());
    std::vector<std::string> all;
    if (is_this_host(host_) && !shell.is_slurm) {
        all = words;
    } else if (shell.is_slurm) {
        all = shell.words;
        all.push_back(host_);
        all.insert(all.end(), words.begin(), words.end());
    } else {
        all = shell.words;
        all.push_back(host_);
        std::string line = "exec env";
        for (const std::string& each : own_options())
            line += " " + quoted(each);
        for (const std::string& each : words)
            line += " " + quoted(each);
        all.push_back(line);
    }
    std::array<int, 2> in{}, out{}, err{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0 ||
        ::pipe2(err.data(), O_CLOEXEC) != 0) {
        why_ = std::string("no more pipes: ") + std::strerror(errno);
        return;
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : all)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int failed =
        ::posix_spawnp(&child_, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    for (const int fd : {in[0], out[1], err[1]})
        ::close(fd);
    input_ = in[1];
    output_ = out[0];
    error_ = err[0];
    if (failed != 0) {
        child_ = -1;
        why_ = all.front() + ": " + std::strerror(failed);
        return;
    }
    for (const int fd : {output_, error_})
        ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

HostAgent::HostAgent(HostAgent&& other) noexcept
    : host_(std::move(other.host_)),
      why_(std::move(other.why_)),
      lines_(std::move(other.lines_)),
      errors_(std::move(other.errors_)),
      child_(std::exchange(other.child_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      error_(std::exchange(other.error_, -1)) {}

// An agent ends when its input does. One that does not is killed; it may hang in a driver's call on
// the other host, and what is waited for is the remote shell here.
HostAgent::~HostAgent() {
    close_pipe(input_);
    for (unsigned turn = 0; child_ > 0; ++turn) {
        constexpr unsigned kPatience = 100;  // turns of 20 ms
        const pid_t ended = ::waitpid(child_, nullptr, turn > kPatience ? 0 : WNOHANG);
        if (ended == child_ || (ended < 0 && errno != EINTR)) break;
        if (turn == kPatience) ::kill(child_, SIGKILL);
        ::usleep(20'000);
    }
    close_pipe(output_);
    close_pipe(error_);
}

void HostAgent::take_errors() {
    std::array<char, 4096> part;
    ssize_t got = 0;
    while (error_ >= 0 && (got = ::read(error_, part.data(), part.size())) > 0)
        errors_.append(part.data(), static_cast<std::size_t>(got));
    if (got == 0) close_pipe(error_);
    constexpr std::size_t kKept = 16 << 10;
    if (errors_.size() > kKept) errors_.erase(0, errors_.size() - kKept);
}

void HostAgent::end(bool in_time) {
    take_errors();
    const std::string last = last_line(errors_);
    if (!in_time) {
        why_ = "no answer in time" + (last.empty() ? "" : "; the last line is: " + last);
        if (child_ > 0) ::kill(child_, SIGKILL);
        return;
    }
    int status = 0;
    if (child_ > 0 && ::waitpid(child_, &status, 0) == child_) child_ = -1;
    why_ = !last.empty()       ? last
           : WIFEXITED(status) ? "it ended with status " + std::to_string(WEXITSTATUS(status))
                               : "it ended by signal " + std::to_string(WTERMSIG(status));
}

std::optional<nlohmann::ordered_json> HostAgent::read(Clock::time_point until) {
    if (!why_.empty() || output_ < 0) return std::nullopt;
    const std::string_view mark = kAgentMark;
    for (;;) {
        for (std::size_t newline; (newline = lines_.find('\n')) != std::string::npos;) {
            const std::string line = lines_.substr(0, newline);
            lines_.erase(0, newline + 1);
            if (!line.starts_with(mark)) continue;
            Json parsed = Json::parse(line.substr(mark.size()), nullptr, false);
            if (!parsed.is_discarded()) return parsed;
        }
        // What has come by then counts, also if another host has used the time up.
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
        std::array<pollfd, 2> fds{{{output_, POLLIN, 0}, {error_, POLLIN, 0}}};
        const int timeout = static_cast<int>(std::clamp<long long>(left, 0, 60'000));
        const int ready = ::poll(fds.data(), fds.size(), timeout);
        if (ready == 0 && left <= 0) {
            end(false);
            return std::nullopt;
        }
        take_errors();
        std::array<char, 4096> part;
        const ssize_t got = ::read(output_, part.data(), part.size());
        if (got > 0) lines_.append(part.data(), static_cast<std::size_t>(got));
        if (got == 0) {
            end(true);
            return std::nullopt;
        }
    }
}

bool HostAgent::write(const Json& line) {
    if (!why_.empty() || input_ < 0) return false;
    const std::string text = line.dump() + "\n";
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t put = ::write(input_, text.data() + done, text.size() - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            end(true);
            return false;
        }
        done += static_cast<std::size_t>(put);
    }
    return true;
}

}  // namespace heddle::cli
