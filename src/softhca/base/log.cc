// SPDX-License-Identifier: BSD-2-Clause
// Each message is one line, written by one write(2). So lines of concurrent processes never mix,
// and a killed process leaves no half line. The log file is opened for each line, for two reasons:
// daemons close every descriptor that they find, and a log can be rotated.
#include "softhca/base/log.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"

namespace softhca {

namespace detail {
std::atomic<int> log_threshold{static_cast<int>(LogLevel::kTrace)};
}  // namespace detail

namespace {

constexpr std::size_t kMaxLine = 1024;
constexpr const char* kLevelNames[] = {"error", "warn", "info", "debug", "trace"};
constexpr unsigned kLogLevels = static_cast<unsigned>(LogLevel::kTrace) + 1;
static_assert(std::size(kLevelNames) == kLogLevels, "each level has a name");

std::atomic<bool> threshold_known{false};

void learn_threshold() noexcept {
    if (!threshold_known.load(std::memory_order_acquire)) {
        set_log_level(options_without_report().log);
    }
}

// The path is made absolute at the first use, so a later chdir() does not scatter the log.
const char* log_path() noexcept {
    struct Resolved {
        char text[PATH_MAX];
    };
    static const Resolved resolved = [] {
        Resolved path{};
        const char* file = options_without_report().log_file;
        const std::size_t length = std::strlen(file);
        ssize_t directory = 0;
        if (length > 0 && file[0] != '/') {
            directory = libc::getcwd(path.text, sizeof path.text);
            if (directory <= 0 || path.text[0] != '/') {
                directory = 0;
            } else {
                path.text[directory++] = '/';
            }
        }
        SOFTHCA_ASSERT(directory >= 0 && directory < PATH_MAX);
        const auto start = static_cast<std::size_t>(directory);
        if (start + length >= sizeof path.text) {
            path.text[0] = '\0';
        } else {
            std::memcpy(path.text + start, file, length + 1);
        }
        return path;
    }();
    return resolved.text;
}

void write_whole(int fd, const char* text, std::size_t size) noexcept {
    // Only an interrupted write is repeated: a full pipe or disk must not stop the program.
    SOFTHCA_DEBUG_ASSERT(fd >= 0 && size > 0 && size <= kMaxLine);
    ssize_t written = 0;
    do {
        written = libc::write(fd, text, size);
    } while (written < 0 && errno == EINTR);
}

// Reports once in a process. The lines that follow go to standard error, too.
void report_unwritable(const char* path, int reason) noexcept {
    static std::atomic<bool> reported{false};
    if (reported.exchange(true, std::memory_order_relaxed)) {
        return;
    }
    char line[kMaxLine];
    errno = reason;  // for %m
    const int length =
        std::snprintf(line, sizeof line,
                      "softhca[%d]: error: SOFTHCA_LOG_FILE %.*s cannot be written (%m): messages "
                      "go to standard error\n",
                      libc::getpid(), static_cast<int>(kMaxLine / 2), path);
    if (length > 0) {
        write_whole(STDERR_FILENO, line, static_cast<std::size_t>(length));
    }
}

}  // namespace

void set_log_level(LogLevel level) noexcept {
    SOFTHCA_DEBUG_ASSERT(static_cast<unsigned>(level) < kLogLevels);
    detail::log_threshold.store(static_cast<int>(level), std::memory_order_relaxed);
    threshold_known.store(true, std::memory_order_release);
}

void log_line(LogLevel level, const char* format, ...) noexcept {
    SOFTHCA_DEBUG_ASSERT(static_cast<unsigned>(level) < kLogLevels);
    const int saved_errno = errno;
    learn_threshold();
    if (!log_enabled(level)) {
        errno = saved_errno;
        return;
    }

    SOFTHCA_DEBUG_ASSERT(format != nullptr);
    char line[kMaxLine];
    const int head = std::snprintf(line, sizeof line, "softhca[%d]: %s: ", libc::getpid(),
                                   kLevelNames[static_cast<int>(level)]);
    std::size_t length = head > 0 ? static_cast<std::size_t>(head) : 0;

    SOFTHCA_DEBUG_ASSERT(length < sizeof line);
    va_list arguments;
    va_start(arguments, format);
    errno = saved_errno;  // for %m
    const int body = std::vsnprintf(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    if (body > 0) {
        length += static_cast<std::size_t>(body);
    }
    if (length > sizeof line - 2) {  // the text was truncated: end it by "..."
        length = sizeof line - 2;
        line[length - 3] = line[length - 2] = line[length - 1] = '.';
    }
    SOFTHCA_DEBUG_ASSERT(length < sizeof line);
    line[length++] = '\n';

    int fd = STDERR_FILENO;
    const char* const path = log_path();
    if (path[0] != '\0') {
        fd = libc::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY,
                        0600);
    }
    if (fd >= 0) {
        write_whole(fd, line, length);
    } else {
        // A line in the wrong place is better than none.
        report_unwritable(path, errno);
        write_whole(STDERR_FILENO, line, length);
    }
    if (fd > STDERR_FILENO) {
        libc::close(fd);
    }
    errno = saved_errno;
}

}  // namespace softhca
