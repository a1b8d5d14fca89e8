// SPDX-License-Identifier: BSD-2-Clause
// The connector's datagrams, from anybody. What can be read is written again as it was, and within
// the bounds that its user relies on. The parser is compiled in here: it needs no verbs.
#include "protocol/wireup/connector_wire.cc"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace heddle::protocol;
    using softhca::fuzz::fail;
    const auto read = parse({reinterpret_cast<const std::byte*>(data), size});
    if (!read) return 0;
    if (read->qpn > 0xffffff || read->psn > 0xffffff || read->mtu > 5 || read->error > 4095 ||
        read->from.process.ud_qpn > 0xffffff)
        fail("a value out of its range was read");
    if (read->kind == DatagramKind::kRequest && (read->mtu == 0 || read->reads == 0))
        fail("a request without an MTU or reads was read");
    std::byte again[kDatagramBytes];
    write(*read, again);
    if (parse(again) != read) fail("what was read is not read again");
    return 0;
}
