// SPDX-License-Identifier: BSD-2-Clause
// What a few steps of a thread take on this host's processors: values of a machine file that need
// no adapter.
#pragma once

#include <cstdint>

namespace heddle::predict {

struct MicroCosts {
    double atomic = 0;         // ns: a lock-prefixed operation on a line of one's own
    double line_transfer = 0;  // ns: a line that another processor has written
    double barrier = 0;        // ns, for each doubling of the threads
};

// Runs on `threads` of the processors that this process may use. With one processor a transfer
// and a barrier cannot be measured: they are 0. Takes about 0.1 s.
MicroCosts micro_costs(std::uint32_t threads);

}  // namespace heddle::predict
