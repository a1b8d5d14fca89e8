// SPDX-License-Identifier: BSD-2-Clause
// Which processor each thread of an experiment runs on: distinct cores of the device's NUMA node as
// long as there are such, then the others that this process may use.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/locality.h"

namespace heddle::bench {

struct Pinning {
    std::vector<int> processors;  // of thread t
    std::size_t cores = 0;        // that this process may use
    bool near = false;            // all of them on the device's NUMA node
    bool oversubscribed = false;  // more threads than cores: they take turns, or share a core
};

inline Pinning pinning(const Locality& place, std::uint32_t threads) {
    HEDDLE_ASSERT(!place.processors.empty(), "this process runs on a processor");
    Pinning p;
    p.cores = place.cores();
    p.near = true;
    p.oversubscribed = threads > p.cores;
    for (std::uint32_t t = 0; t < threads; ++t) {
        const Processor& processor = place.processors[t % place.processors.size()];
        p.processors.push_back(processor.number);
        p.near = p.near && processor.near;
    }
    HEDDLE_ASSERT(p.processors.size() == threads, "each thread has a processor");
    return p;
}

}  // namespace heddle::bench
