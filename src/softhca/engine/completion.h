// SPDX-License-Identifier: BSD-2-Clause
// Writes completion queue entries (struct mlx5_cqe64 of infiniband/mlx5dv.h) and handles their
// consequences: completion events and overrun.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::engine {

// The content of a CQE. It is zero except for the fields that the opcode needs. Owner bit, opcode
// and timestamp are filled in when it is written.
struct Completion {
    alignas(64) mlx5_cqe64 cqe;
    std::uint8_t opcode;  // MLX5_CQE_*
    bool solicited;
    std::uint8_t inline_length;  // bytes of payload in the CQE: 0..64
    std::byte payload[64];
};

// How many bytes of payload travel in the CQE, as the QP's record says and an entry has room for.
inline std::size_t in_entry(std::uint32_t scatter) noexcept {
    constexpr std::size_t kMost = sizeof(Completion::payload);
    return scatter < kMost ? scatter : kMost;
}

void clear(Completion& completion) noexcept;
void set_error(Completion& completion, std::uint8_t opcode, std::uint8_t syndrome) noexcept;

// The vendor syndromes of error CQEs, as ConnectX firmware reports them.
std::uint8_t vendor_syndrome(std::uint8_t syndrome) noexcept;

enum class Put { kOk, kBusy, kFailed };  // kFailed: the queue is gone or in error; the CQE is lost

// Writes one CQE. The caller is inside an epoch. kBusy is possible only if `patient` is false.
Put put_completion(device::Fabric& fabric, std::uint32_t cq, Completion& completion,
                   bool patient) noexcept;

// An application has armed the queue: sends the event at once if there is a CQE that it has not
// seen.
void check_armed(device::Fabric& fabric, std::uint32_t cq) noexcept;
// Does the program wait for an event of this CQ, or is about to?
bool is_armed(device::Fabric& fabric, std::uint32_t cq) noexcept;

// Prepares the arm word, so that the application's first arm differs from no arm.
void disarm(device::Fabric& fabric, device::CompletionQueue& cq) noexcept;

}  // namespace softhca::engine
