// SPDX-License-Identifier: BSD-2-Clause
// A request for something that the device does not have. The program gets the errno of a device
// without it; the log says, once in a process for each such thing, what was asked for.
#pragma once

#include <cstdint>

#include "softhca/base/log.h"

namespace softhca {

// Returns `error`. `what`, a string that is never freed, names the thing: "raw packet queue pairs".
// kWarn, which is written by default, is for what a program cannot do without. Libraries ask for
// some things only to see whether they are there: those are kInfo. Thread-safe.
int missing(int error, const char* what, LogLevel level = LogLevel::kWarn) noexcept;

}  // namespace softhca
