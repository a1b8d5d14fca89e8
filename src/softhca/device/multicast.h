// SPDX-License-Identifier: BSD-2-Clause
// The multicast groups of a fabric, and the QPs that are attached to them (IBTA 10.5). The device
// finds a group by its GID alone, as mlx5 does: the LID, with which a program attaches, is the
// switches' affair.
//
// A sender reads the groups without the lock, inside an epoch. A QP leaves its groups before it is
// freed, so a member that a sender has read stays a QP of the fabric while the sender uses it.
#pragma once

#include <atomic>
#include <cstdint>

#include "softhca/device/limits.h"
#include "softhca/device/lock.h"

namespace softhca::device {

struct Segment;
struct QueuePair;

// The number that a message to a group is sent to (IBTA 9.6.1.3.4, 10.5.1).
inline constexpr std::uint32_t kMulticastQp = 0xff'ffff;
// The LIDs of groups (IBTA 4.1.3). The last one of 16 bits is the permissive LID.
inline constexpr std::uint16_t kFirstMulticastLid = 0xc000, kLastMulticastLid = 0xfffe;

inline bool is_multicast_lid(std::uint16_t lid) noexcept {
    return lid >= kFirstMulticastLid && lid <= kLastMulticastLid;
}
// Whether the 16 bytes are a GID of a group: that of an IPv6 group, or of an IPv4 one that is
// mapped to IPv6 (rdma_is_multicast_addr of the kernel).
bool is_multicast_gid(const std::uint8_t* gid) noexcept;

// One QP in one group, as it lies in MulticastGroups.members.
struct Membership {
    std::uint32_t qp;  // index in Segment.qps
    std::uint16_t lid;
    bool is_duplicate;     // the QP is in the group by another LID, too, and receives by that
    std::uint32_t joined;  // MulticastGroup.joins after it was attached, modulo kJoinsModulus
};
inline constexpr std::uint32_t kJoinsModulus = 1u << 31;

// 0 stands for a free place, and no QP has index 0.
static_assert(kFirstQp > 0 && kMaxQps <= 1u << 16);
constexpr std::uint64_t pack(const Membership& member) noexcept {
    return member.qp | std::uint64_t{member.lid} << 16 |
           std::uint64_t{member.is_duplicate ? 1u : 0u} << 32 | std::uint64_t{member.joined} << 33;
}
constexpr Membership unpack(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word & 0xffff), static_cast<std::uint16_t>(word >> 16),
            (word >> 32 & 1) != 0, static_cast<std::uint32_t>(word >> 33)};
}

// Written under the lock. A group without members may become that of another GID at any time. So a
// sender reads `joins` first, then the GID, and passes over members that joined later.
struct MulticastGroup {
    std::atomic<std::uint64_t> gid[2];  // as in memory
    std::atomic<std::uint32_t> joins;   // how often a QP was attached, whatever the GID was
};

struct MulticastGroups {
    SharedLock lock;
    std::atomic<std::uint32_t> high;  // no group at or above this index was ever used
    MulticastGroup groups[kMaxMulticastGroups];
    std::atomic<std::uint64_t> members[kMaxMulticastGroups][kMaxGroupMembers];
};

// Attaches a QP of this process. Returns 0, also if it was attached with that LID before; ENOMEM if
// the group or the table is full; ETIMEDOUT if a stopped process has the lock.
int attach_multicast(Segment& segment, QueuePair& qp, const std::uint8_t* gid,
                     std::uint16_t lid) noexcept;
// Returns 0; EINVAL if it is not attached with that LID; ETIMEDOUT as above.
int detach_multicast(Segment& segment, QueuePair& qp, const std::uint8_t* gid,
                     std::uint16_t lid) noexcept;
// The QP, or all QPs in state kDying of the process in `slot`, leave all groups. False: a stopped
// process has the lock.
bool leave_multicast(Segment& segment, QueuePair& qp) noexcept;
bool leave_multicast_of(Segment& segment, std::uint32_t slot) noexcept;

// The group of that GID, as a sender finds it. index kNone: there is none.
struct FoundGroup {
    std::uint32_t index, joins;
};
FoundGroup find_multicast(const Segment& segment, const std::uint8_t* gid) noexcept;

// Whether a member was there when `joins` was read.
constexpr bool had_joined(const Membership& member, std::uint32_t joins) noexcept {
    return ((joins - member.joined) & (kJoinsModulus - 1)) < kJoinsModulus / 2;
}

}  // namespace softhca::device
