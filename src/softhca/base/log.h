// SPDX-License-Identifier: BSD-2-Clause
// Messages: lines "softhca[PID]: level: text", each written by one write(2) to standard error or to
// SOFTHCA_LOG_FILE. SOFTHCA_LOG is the least important level that is written. A message below it
// costs one load and one branch.
//
// Logging allocates nothing and keeps errno. It may be used in signal handlers, in fork and vfork
// children, and before constructors have run.
#pragma once

#include <atomic>

#include "softhca/base/options.h"

namespace softhca {

namespace detail {
// The least important level that is written. It starts at kTrace, so that the first message reaches
// log_line(), which reads the options.
extern std::atomic<int> log_threshold;
}  // namespace detail

inline bool log_enabled(LogLevel level) noexcept {
    return static_cast<int>(level) <= detail::log_threshold.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3), cold));

// For tests, and for the command line, whose flags override the environment.
void set_log_level(LogLevel level) noexcept;

}  // namespace softhca

#define SOFTHCA_LOGF(level, ...)                          \
    do {                                                  \
        if (::softhca::log_enabled(level)) [[unlikely]] { \
            ::softhca::log_line(level, __VA_ARGS__);      \
        }                                                 \
    } while (false)

// These write once in a process. A forked child inherits what its parent has already written.
#define SOFTHCA_LOGF_ONCE(level, ...)                                                 \
    do {                                                                              \
        static ::std::atomic<bool> softhca_said{false};                               \
        if (::softhca::log_enabled(level) &&                                          \
            !softhca_said.exchange(true, ::std::memory_order_relaxed)) [[unlikely]] { \
            ::softhca::log_line(level, __VA_ARGS__);                                  \
        }                                                                             \
    } while (false)

#define LOG_ERROR(...) SOFTHCA_LOGF(::softhca::LogLevel::kError, __VA_ARGS__)
#define LOG_WARN(...) SOFTHCA_LOGF(::softhca::LogLevel::kWarn, __VA_ARGS__)
#define LOG_INFO(...) SOFTHCA_LOGF(::softhca::LogLevel::kInfo, __VA_ARGS__)
#define LOG_DEBUG(...) SOFTHCA_LOGF(::softhca::LogLevel::kDebug, __VA_ARGS__)
#define LOG_TRACE(...) SOFTHCA_LOGF(::softhca::LogLevel::kTrace, __VA_ARGS__)

#define LOG_ERROR_ONCE(...) SOFTHCA_LOGF_ONCE(::softhca::LogLevel::kError, __VA_ARGS__)
#define LOG_WARN_ONCE(...) SOFTHCA_LOGF_ONCE(::softhca::LogLevel::kWarn, __VA_ARGS__)
#define LOG_INFO_ONCE(...) SOFTHCA_LOGF_ONCE(::softhca::LogLevel::kInfo, __VA_ARGS__)
