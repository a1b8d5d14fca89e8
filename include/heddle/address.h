// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace heddle {

/// Where a queue pair can be reached. A port of InfiniBand is addressed by its LID within a subnet,
/// an Ethernet port (RoCE) by its GID.
///
/// A plain value: copy it to the peer by any means (a socket, MPI, a file) and pass it to
/// Endpoint::connect() there.
///
///     const heddle::QpAddress mine = set[0].address();
///     heddle::QpAddress theirs;
///     MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, peer, 0,      // any way of exchange will do
///                  &theirs, sizeof theirs, MPI_BYTE, peer, 0, comm, MPI_STATUS_IGNORE);
///     set[0].connect(theirs);
struct QpAddress {
    std::uint32_t qpn = 0;      ///< queue pair number, 24 bits
    std::uint16_t lid = 0;      ///< of the port; 0 on Ethernet
    std::uint8_t lid_bits = 0;  ///< LMC: the port has 2^lid_bits LIDs, from `lid`
    std::uint8_t gid[16] = {};  ///< of the port, in network order
    bool ethernet = false;      ///< the link layer: RoCE if true, InfiniBand if false
};

}  // namespace heddle
