// SPDX-License-Identifier: BSD-2-Clause
// The private data of a request (REQ, SIDR_REQ) as it travels. An id with an IP address puts a
// header before what its program has (Annex A11 of the InfiniBand specification, struct cma_hdr of
// the kernel); an id of AF_IB has none. The message does not say which of them it is from, so the
// receiving side looks at the first bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "softhca/rdmacm/locked.h"

namespace softhca::rdmacm {

class RequestData {
public:
    // What the id's program may put into a request, and what the program of a listener with an
    // address of that family gets of it.
    static std::size_t room_for(const CmId& id, std::uint16_t family) noexcept;

    // The request of an id with both addresses. `bytes` must be room_for() it at most.
    RequestData(const CmId& id, const void* data, std::size_t bytes) noexcept;

    // What the program of a listener with an address of that family gets: room_for() bytes.
    const void* data_for(std::uint16_t family) const noexcept;
    // Reads the header's addresses; the destination's port is that of the service ID. False: the
    // data does not begin with a header.
    bool read_header(CmAddress* source, CmAddress* destination) const noexcept;

private:
    std::uint64_t service_;
    std::array<std::uint8_t, 216> bytes_{};  // those of a REQ are fewer
};

}  // namespace softhca::rdmacm
