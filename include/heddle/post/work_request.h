// SPDX-License-Identifier: BSD-2-Clause
// What an endpoint is asked to do and what it answers: the same for both posting paths. Plain
// values; memory they name must stay until the work completes (until the post returns, when it is
// inline).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

namespace heddle::post {

enum class Opcode : std::uint8_t {
    kSend,
    kSendImm,
    kWrite,
    kWriteImm,
    kRead,
    kCompareSwap,
    kFetchAdd,
};

enum Flags : std::uint8_t {
    kSignaled = 1,   // a completion for this one, and for all before it
    kSolicited = 2,  // it wakes a receiver that waits for solicited ones
    kInline = 4,     // payload is copied into the entry
    kFence = 8,      // not before reads and atomics that were posted earlier are done
};

struct WorkRequest {
    Opcode opcode = Opcode::kSend;
    std::uint8_t flags = 0;
    std::span<const ibv_sge> sges;     // gathered; for reads and atomics where the answer goes
    std::uint64_t remote_address = 0;  // RDMA and atomics
    std::uint32_t remote_key = 0;
    std::uint32_t immediate = 0;       // host order
    std::uint64_t compare_or_add = 0;  // host order
    std::uint64_t swap = 0;
    std::uint32_t remote_srq = 0;  // XRC
    std::uint64_t id = 0;          // comes back in the completion
};

struct Completion {
    std::uint64_t id = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::uint32_t vendor_error = 0;
    ibv_wc_opcode opcode = IBV_WC_SEND;  // undefined, as in verbs, when status is not success
    std::uint32_t bytes = 0;             // of a receive, or of a read or atomic
    std::uint32_t immediate = 0;         // host order, if has_immediate
    bool has_immediate = false;
    std::uint32_t qpn = 0, source_qpn = 0;
};

enum class Posted : std::uint8_t { kOk, kFull, kInvalid };

}  // namespace heddle::post
