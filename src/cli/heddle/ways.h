// SPDX-License-Identifier: BSD-2-Clause
// The ways in which messages travel that experiments compare: their names, and what the provider
// is told for each.
#pragma once

#include <string>
#include <vector>

#include "protocol/options.h"

namespace heddle::cli {

// "tupleq" has every message wait for its receive; "tupleq+copy" copies small ones that would, as
// the provider does by default.
inline const std::vector<std::string> kWays{"tupleq", "tupleq+copy", "rput", "rget", "auto"};

inline protocol::Options options_of(const std::string& way, const std::string& device) {
    using protocol::Rendezvous;
    protocol::Options options;
    options.device = device;
    options.rendezvous = way == "rput"   ? Rendezvous::kPut
                         : way == "rget" ? Rendezvous::kGet
                         : way == "auto" ? Rendezvous::kAuto
                                         : Rendezvous::kTuple;
    if (way == "tupleq") options.tuple_copy = 0;
    return options;
}

}  // namespace heddle::cli
