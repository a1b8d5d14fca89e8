// SPDX-License-Identifier: BSD-2-Clause
// The program that `softhca run` is to start: finding it as a shell does, and telling beforehand
// when the dynamic loader could not preload a library into it.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cli_common {

// Exit statuses of `softhca run` itself, those of env(1), nohup(1) and timeout(1).
inline constexpr int kRunFailed = 125;      // softhca could not do its part
inline constexpr int kCannotExecute = 126;  // the program is there but cannot be run
inline constexpr int kNotFound = 127;

class ProgramError : public std::runtime_error {
public:
    ProgramError(int status, const std::string& what) : std::runtime_error(what), status_(status) {}
    int status() const noexcept { return status_; }

private:
    int status_;
};

// The path of the file that executes for `name`: itself if it has a slash, else the first
// executable of that name on PATH. Throws ProgramError.
std::string find_program(const std::string& name);

// Throws ProgramError if LD_PRELOAD has no effect on this program: statically linked, for another
// architecture or C library, or running with privileges of its own (setuid). Scripts are judged by
// their interpreter. What cannot be read is taken to be fine.
void check_preloadable(const std::string& path);

// An LD_PRELOAD of ld.so(8) without the libraries of these names, whatever folder they are in.
std::string preloaded_without(std::string_view list, std::initializer_list<std::string_view> names);

// Becomes the program at `path`, with arguments as execv(3) wants them. A script without "#!" is
// run by the shell, as execvp(3) does; an ELF file that the kernel refuses is not, for the shell
// would take its bytes for commands. Returns errno.
int execute(const std::string& path, char* const* arguments);

}  // namespace cli_common
