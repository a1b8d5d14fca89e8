// SPDX-License-Identifier: BSD-2-Clause
// Decodes a send WQE: control segment, transport segments, gather list or inline data
// (infiniband/mlx5dv.h, struct mlx5_wqe_*). The ring belongs to this process, but a program may
// have overwritten it. So every length is checked against the WQE's size and the ring's end.
#pragma once

#include <infiniband/mlx5dv.h>
#include <string.h>

#include <cstdint>

#include "softhca/device/identity.h"
#include "softhca/engine/local.h"
#include "softhca/engine/mkeys.h"
#include "softhca/engine/spans.h"
#include "softhca/engine/windows.h"

namespace softhca::engine {

// WQEs consist of units of 16 bytes, four to a block. The application may write them at any time,
// so what is examined is copied out.
inline constexpr std::uint32_t kUnit = 16, kUnitsInBlock = 4;

template <class T>
T load(const std::byte* from) noexcept {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// The header in front of a datagram's payload on an Ethernet port, in UdAddress::service_level.
inline constexpr std::uint8_t kRoceV1 = 0, kRoceV2OverIpv6 = 1, kRoceV2OverIpv4 = 2;

// Where a UD or DC request goes, and what its header says. has_grh and service_level are set for
// all transports.
struct UdAddress {
    std::uint32_t qpn, qkey, flow_label;
    std::uint64_t access_key;  // DC, in the place of the Q_Key
    std::uint16_t dlid;
    std::uint8_t service_level, traffic_class, hop_limit, sgid_index;
    bool has_grh;
    std::uint8_t dgid[16];
};

struct Request {
    std::uint8_t opcode;      // MLX5_OPCODE_*
    std::uint8_t control;     // fm_ce_se: signalled, solicited, fence
    std::uint32_t immediate;  // big-endian, as it travels
    std::uint32_t blocks;     // 64-byte basic blocks of the WQE
    std::uint32_t units;      // 16-byte units (ds)
    bool has_inline;
    // RDMA and atomics
    std::uint64_t remote_address;
    std::uint32_t remote_key;
    std::uint64_t swap_or_add, compare;
    // XRC
    std::uint32_t srq_number;
    UdAddress ud;
    WindowChange window;       // UMR of a window
    MkeyChange mkey;           // UMR of an indirect key: is_mkey(mkey.key)
    std::uint16_t source_lid;  // the sender's LID for the receiver's CQE, of all transports

    SpanList data;     // gather list; for READ and atomics, where the response goes
    unsigned gathers;  // SGEs that take a DMA read (not inline)

    bool signalled() const noexcept { return control & MLX5_WQE_CTRL_CQ_UPDATE; }
    bool solicited() const noexcept { return control & MLX5_WQE_CTRL_SOLICITED; }
};

constexpr bool is_send(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM ||
           opcode == MLX5_OPCODE_SEND_INVAL;
}
constexpr bool is_atomic(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
}

// The index of the port (device/port.h) that the QP is at; of a QP that has none, some other.
inline unsigned port_index(const device::QueuePair& qp) noexcept {
    return unsigned{qp.attr.lid} - device::kFirstLid;
}

// The requests of such QPs name their destination themselves.
bool has_address_vector(std::uint32_t type) noexcept;

// The number of the QP that the request goes to.
inline std::uint32_t target_number(const device::QueuePair& qp, const Request& request) noexcept {
    return has_address_vector(qp.type) ? request.ud.qpn : qp.attr.dest_qpn;
}

// Decodes the WQE at `counter`. Returns 0 or the syndrome (MLX5_CQE_SYNDROME_*) of the local error.
// blocks, opcode and control are valid in either case. The caller is inside an epoch.
std::uint8_t decode(device::Fabric& fabric, const LocalQp& local, const device::QueuePair& qp,
                    std::uint16_t counter, Request& request) noexcept;

// Whether the WQE at `counter` carries inline data. Resolves no key.
bool carries_inline(const LocalQp& local, const device::QueuePair& qp,
                    std::uint16_t counter) noexcept;

// What the run record says of a WQE. Resolves no key.
struct Outline {
    bool has_inline, signaled, reads;  // reads: a READ or an atomic, whose data come back
    std::uint64_t bytes;               // of payload
    std::uint64_t address;             // of the first SGE; 0: there is none
};
Outline outline(const LocalQp& local, const device::QueuePair& qp, std::uint16_t counter) noexcept;

// The blocks of the WQE at `counter`; at least 1, so that a walk always ends.
std::uint32_t entry_blocks(const LocalQp& local, std::uint16_t counter) noexcept;
std::uint32_t entry_units(const LocalQp& local, std::uint16_t counter) noexcept;

// 16-byte units of a UMR of a window behind its control segment, as libmlx5 makes it (set_bind_wr).
inline constexpr std::uint32_t kUmrControlUnits = 3, kUmrContextUnits = 4, kUmrDataUnits = 4;
constexpr std::uint32_t umr_units(bool binds) noexcept {
    return kUmrControlUnits + kUmrContextUnits + (binds ? kUmrDataUnits : 0);
}

}  // namespace softhca::engine
