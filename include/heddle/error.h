// SPDX-License-Identifier: BSD-2-Clause
// The exception that heddle throws. The data path (posting and polling) never throws.
#pragma once

#include <stdexcept>
#include <string>

namespace heddle {

/// A verbs call failed, or its arguments could never succeed.
///
/// `what()` is one line: what was requested, the system's message for the errno, and a hint.
///
///     try {
///         heddle::EndpointSet set("", heddle::Category::kDynamic, threads);
///     } catch (const heddle::VerbsError& error) {
///         std::fprintf(stderr, "%s\n", error.what());  // names the resource that ran out
///         if (error.error() == ENODEV) return kNoDevice;
///     }
///
/// Thread safety: an object may be read by several threads at once.
class VerbsError : public std::runtime_error {
public:
    /// Composes the message.
    /// @param asked what was requested, as a noun phrase: "queue pair 3 of 8 of depth 128"
    /// @param error an errno; 0 if no system call failed
    /// @param hint what would succeed instead; may be empty
    VerbsError(const std::string& asked, int error, const std::string& hint = {});

    /// Returns the errno of the failed call; 0 if no system call failed.
    int error() const noexcept { return error_; }
    /// Returns what was requested. Valid as long as this object.
    const std::string& asked() const noexcept { return asked_; }
    /// Returns what would succeed instead, or an empty string. Valid as long as this object.
    const std::string& hint() const noexcept { return hint_; }

private:
    int error_;
    std::string asked_, hint_;
};

}  // namespace heddle
