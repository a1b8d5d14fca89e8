// SPDX-License-Identifier: BSD-2-Clause
// The modes of the rendezvous protocol that experiments compare (their option --way): the name of
// each, and the options that the provider gets for it.
#pragma once

#include <string>
#include <vector>

#include "protocol/common/options.h"

namespace heddle::cli {

// "tupleq" has every message wait for its receive; "tupleq+copy" copies small ones that would, as
// the provider does by default.
inline const std::vector<std::string> kRndvModes{"tupleq", "tupleq+copy", "rput", "rget", "auto"};

inline protocol::Options options_of(const std::string& mode, const std::string& device) {
    using protocol::Rendezvous;
    protocol::Options options;
    options.device = device;
    options.rendezvous_above = 0;  // what is longer than eager shall go by that mode
    options.rendezvous = mode == "rput"   ? Rendezvous::kPut
                         : mode == "rget" ? Rendezvous::kGet
                         : mode == "auto" ? Rendezvous::kAuto
                                          : Rendezvous::kTuple;
    if (mode == "tupleq") options.tuples.copy_below = 0;
    return options;
}

}  // namespace heddle::cli
