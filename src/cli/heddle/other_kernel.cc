// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/other_kernel.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "cli/heddle/commands.h"
#include "heddle/detail/assert.h"
#include "heddle/usage.h"

namespace heddle::cli {
namespace {

constexpr std::string_view kVariable = "SOFTHCA_UAR=";

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

std::vector<char*> environment_with(std::string& setting) {
    HEDDLE_ASSERT(setting.starts_with(kVariable), "it replaces the user's value");
    std::vector<char*> all;
    for (char** entry = environ; *entry != nullptr; ++entry)
        if (!std::string_view(*entry).starts_with(kVariable)) all.push_back(*entry);
    all.push_back(setting.data());
    all.push_back(nullptr);
    return all;
}

}  // namespace

OtherKernel run_under_other_kernel(const DeviceInfo& device,
                                   const std::vector<std::string>& arguments) {
    const auto kernel = uar_kernel(device.name);
    if (!device.software || !kernel)
        return {
            "",
            "The other UAR kernel is not measured: this device has the one it has. `softhca run "
            "-- heddle plan --kernels both` measures both on the software HCA.\n",
            0};
    std::string setting(kVariable);
    setting += *kernel == UarKernel::kStatic ? "dynamic" : "static";
    std::vector<char*> environment = environment_with(setting);
    std::vector<std::string> words{"heddle"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);

    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child = 0;
    const int error =
        ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0)
        throw std::system_error(error, std::generic_category(), "starting heddle again");
    HEDDLE_ASSERT(child > 0, "the run that was started is waited for");
    OtherKernel other;
    char piece[4096];
    for (ssize_t got; (got = ::read(ends[0], piece, sizeof piece)) > 0;)
        other.output.append(piece, static_cast<std::size_t>(got));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    other.status = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
    if (other.output.empty()) other.why_not = "The run under the other UAR kernel failed.\n";
    return other;
}

}  // namespace heddle::cli
