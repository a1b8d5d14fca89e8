// SPDX-License-Identifier: BSD-2-Clause
// Work queues whose owner scribbles over them: queue pairs of every transport, connected to each
// other, on rings, receive lists, doorbell records and completion queues that the input fills.
// Whatever stands there, the engine must come to an end, and must neither write outside of queues
// and registered memory nor hand out what lies there.
#include "wqe_operations.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 64;

World& world() {
    static World* world = new World;  // as long as the process
    return *world;
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    softhca::fuzz::use_own_fabric("wqe", *arguments);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softhca::fuzz;
    World& w = world();
    Input input(data, size);
    w.begin(input.word());
    for (unsigned n = 0; n < kMostOperations && !input.empty(); ++n)
        one_operation(w, input);
    run_all_listed(w);
    restore_words();
    if (size & 1)  // flushing, too
        for (Queue& queue : w.queues)
            w.modify(queue, IBV_QPS_ERR);
    restore_regions();
    w.check();
    return 0;
}
