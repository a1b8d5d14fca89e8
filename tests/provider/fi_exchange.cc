// SPDX-License-Identifier: BSD-2-Clause
// A program for tests to start: two endpoints of one process send each other messages of all ways.
// With "small COUNT" it then sends as many small ones; with "wait" it makes progress until its
// input ends, so that it can be sent a signal.
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/provider/fi_support.h"

int main(int argc, char** argv) {
    using namespace heddle::test;
    World world;
    Pair pair(world);
    const auto exchange = [&](std::size_t bytes) {
        std::vector<char> from(bytes, 'x'), to(bytes);
        if (fi_trecv(pair.b.ep.get(), to.data(), bytes, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr))
            return false;
        const auto send = [&] {
            return fi_tsend(pair.a.ep.get(), from.data(), bytes, nullptr, pair.to_b, 1, nullptr);
        };
        fi_cq_tagged_entry entry;
        return insist(pair.a.transmit.get(), send) == 0 && next(pair.b.receive.get(), entry) == 0 &&
               next(pair.a.transmit.get(), entry) == 0 && from == to;
    };
    for (const std::size_t bytes : {8u, 4000u, 100'000u})
        if (!exchange(bytes)) return 1;
    if (argc == 3 && std::strcmp(argv[1], "small") == 0)
        for (int i = std::atoi(argv[2]); i > 0; --i)
            if (!exchange(8)) return 1;
    if (argc < 2 || std::strcmp(argv[1], "wait") != 0) return 0;
    std::puts("ready");
    std::fflush(stdout);
    pollfd input{0, POLLIN, 0};
    while (poll(&input, 1, 1) <= 0)
        fi_cq_read(pair.a.transmit.get(), nullptr, 0);
    return 0;
}
