// SPDX-License-Identifier: BSD-2-Clause
// What constructors of heddle throw. Nothing throws on the data path.
#pragma once

#include <stdexcept>
#include <string>

namespace heddle {

// A verbs call failed, or would: `what()` says what was asked for, what the system answered and
// which limit was met, if one was.
class VerbsError : public std::runtime_error {
public:
    VerbsError(const std::string& asked, int error, const std::string& hint = {});

    int error() const noexcept { return error_; }                 // errno
    const std::string& asked() const noexcept { return asked_; }  // "a QP of depth 128 ..."
    const std::string& hint() const noexcept { return hint_; }    // what is possible, or empty

private:
    int error_;
    std::string asked_, hint_;
};

}  // namespace heddle
