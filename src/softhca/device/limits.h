// SPDX-License-Identifier: BSD-2-Clause
// The sizes of the device: the capacity of a fabric's tables, and the limits that the query
// commands report. A ConnectX-6 has more of most of them. Every reported limit can really be
// reached. All tables are sparse, so a large limit costs nothing until it is used.
#pragma once

#include <cstdint>

namespace softhca::device {

inline constexpr std::uint32_t kNone = 0xffffffffu;

inline constexpr std::uint32_t kMaxProcesses = 1024;
inline constexpr std::uint32_t kMaxThreads = 128;  // epoch records a process; see epoch.h
inline constexpr std::uint32_t kMaxContexts = 8192;
inline constexpr std::uint32_t kMaxPds = 65536;
inline constexpr std::uint32_t kMaxMrs = 1u << 19;
inline constexpr std::uint32_t kMaxMws = 65536;
inline constexpr std::uint32_t kMaxMkeys = 8192;
inline constexpr std::uint32_t kMaxMkeyParts = 512;
inline constexpr std::uint32_t kMaxCqs = 65536;
inline constexpr std::uint32_t kMaxQps = 65536;
inline constexpr std::uint32_t kMaxSrqs = 65536;
inline constexpr std::uint32_t kMaxXrcds = 4096;
inline constexpr std::uint32_t kMaxXrcdHandles = 16384;
inline constexpr std::uint32_t kMaxChannels = 16384;
// Multicast: groups, and members of each, a ConnectX-6 having 240 of them.
inline constexpr std::uint32_t kMaxMulticastGroups = 8192;
inline constexpr std::uint32_t kMaxGroupMembers = 240;
// Connections of rdma_cm. librdmacm has room for ids of 16 bits.
inline constexpr std::uint32_t kMaxCmIds = 65536;
inline constexpr std::uint32_t kMaxCmEvents = 65536;
inline constexpr std::uint32_t kMaxCmGroups = 65536;
// "the device's 8K pages" of the ICPADS'18 paper
inline constexpr std::uint32_t kMaxUarPages = 8192;

// The first usable index of each table. Smaller numbers have other meanings on the wire or in the
// driver: QP 0 and 1, the reserved lkey 0x100, UAR page 0.
inline constexpr std::uint32_t kFirstPd = 1;
inline constexpr std::uint32_t kFirstMr = 16;
inline constexpr std::uint32_t kFirstCq = 64;
inline constexpr std::uint32_t kFirstQp = 64;
inline constexpr std::uint32_t kFirstSrq = 64;
inline constexpr std::uint32_t kFirstUar = 1;

// The lkey of the null region (ibv_alloc_null_mr(3)): all zeros, and what is stored there is gone.
inline constexpr std::uint32_t kNullKey = 0x300;
static_assert(kNullKey >> 8 < kFirstMr);

// Queue limits, as mlx5_ib reports them for a ConnectX-6.
inline constexpr std::uint32_t kMaxQpWr = 32768;
inline constexpr std::uint32_t kMaxSqDescriptorBytes = 1008;  // 63 16-byte units (ds is six bits)
inline constexpr std::uint32_t kMaxRqDescriptorBytes = 512;
inline constexpr std::uint32_t kMaxSendWqebb = 32768;
inline constexpr std::uint32_t kMaxSge = 30;
inline constexpr std::uint32_t kFewSges = 4;                   // DeviceTrait::kFewSges
inline constexpr std::uint32_t kSmallSqDescriptorBytes = 256;  // DeviceTrait::kSmallInline
inline constexpr std::uint32_t kMaxCqe = (1u << 22) - 1;
inline constexpr std::uint32_t kMaxSrqWr = 32767;
inline constexpr std::uint32_t kMaxSrqSge = 31;
inline constexpr std::uint32_t kMaxRdAtomic = 16;
inline constexpr std::uint64_t kMaxMessage = 1ull << 30;
inline constexpr std::uint32_t kMtu = 4096;
inline constexpr std::uint32_t kCompVectors = 2;
// A DCI's streams at work at a time, and its failed ones at which it fails as a whole.
inline constexpr std::uint32_t kMaxLogStreams = 6, kMaxLogFailedStreams = 6;

// Device memory (MEMIC) of the whole device. Each allocation takes pages of its own and begins on a
// page boundary, as the kernel allocates it.
inline constexpr std::uint32_t kMemicPages = 32;
inline constexpr std::uint32_t kMemicPageBytes = 4096;
inline constexpr std::uint32_t kMemicBytes = kMemicPages * kMemicPageBytes;

// UARs of one context: 512 dynamic UAR pages (MLX5_MAX_DYN... of the kernel), two uUARs each.
inline constexpr std::uint32_t kUarPageBytes = 4096;
inline constexpr std::uint32_t kBfRegisterBytes = 512;
inline constexpr std::uint32_t kBfOffset = 0x800;
inline constexpr std::uint32_t kUuarsPerUar = 2;
inline constexpr std::uint32_t kMaxDynamicUars = 512;

}  // namespace softhca::device
