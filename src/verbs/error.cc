// SPDX-License-Identifier: BSD-2-Clause
#include "heddle/error.h"

#include <cstring>

#include "heddle/detail/assert.h"

namespace heddle {
namespace {

std::string text_of(const std::string& asked, int error, const std::string& hint) {
    HEDDLE_ASSERT(error >= 0, "an errno is not negative");
    std::string text = asked;
    if (error != 0) text += std::string(": ") + std::strerror(error);
    if (!hint.empty()) text += "; " + hint;
    return text;
}

}  // namespace

VerbsError::VerbsError(const std::string& asked, int error, const std::string& hint)
    : std::runtime_error(text_of(asked, error, hint)), error_(error), asked_(asked), hint_(hint) {}

}  // namespace heddle
