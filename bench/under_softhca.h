// SPDX-License-Identifier: BSD-2-Clause
// A measuring program that starts itself again, under the `softhca` beside it.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/common/measure.h"

namespace heddle::bench {

// Runs `softhca run` with `options`, this program with `words`, and returns the line of JSON that
// it prints. Ends the program if that fails.
inline nlohmann::ordered_json run_under_softhca(const std::vector<std::string>& options,
                                                const std::vector<std::string>& words) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::string> all{self.parent_path() / "softhca", "run"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--", self});
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& word : all)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) give_up("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    pid_t child = 0;
    errno = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    if (errno != 0) give_up(arguments[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (status != 0 || json.is_discarded()) {
        std::fprintf(stderr, "%s failed:", self.filename().c_str());
        for (const std::string& word : words)
            std::fprintf(stderr, " %s", word.c_str());
        std::fputc('\n', stderr);
        std::exit(1);
    }
    return json;
}

}  // namespace heddle::bench
