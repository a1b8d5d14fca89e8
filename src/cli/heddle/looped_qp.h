// SPDX-License-Identifier: BSD-2-Clause
// A queue pair that is connected to itself, so that one port is enough: for checks of what a device
// does with work.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "cli/heddle/hardware_check.h"
#include "verbs/handles.h"

namespace heddle::cli {

constexpr std::uint32_t kMaxSges = 4;
constexpr auto kCompletionPatience = std::chrono::seconds(5);
// Where in the memory of the device the target of an operation is.
constexpr std::size_t kRemote = CheckedDevice::kBytes / 2;

// A QP that is connected to itself, with CQs of its own.
class LoopedQp {
public:
    explicit LoopedQp(CheckedDevice& device);
    ~LoopedQp();
    LoopedQp(const LoopedQp&) = delete;
    LoopedQp& operator=(const LoopedQp&) = delete;

    ibv_qp* qp() const noexcept { return qp_.get(); }
    ibv_cq* cq() const noexcept { return cq_.get(); }
    ibv_cq* receive_cq() const noexcept { return receive_cq_.get(); }

    // These throw VerbsError.
    // Posts a signaled RDMA WRITE between two places of the device's memory.
    void write(std::size_t from, std::size_t to, std::uint32_t bytes);
    // Polls until there is a completion, for kCompletionPatience at most.
    void wait(ibv_cq* cq) const;

    // Waits that long for an event of cq(), and reads it. False: there was none.
    bool event(int milliseconds);

    std::uint32_t max_inline = 0;

private:
    CheckedDevice& device_;
    verbs::CompletionChannel channel_;
    verbs::CompletionQueue cq_, receive_cq_;
    verbs::QueuePair qp_;
    unsigned events_ = 0;
};

// Throws VerbsError: the check cannot be made of this device.
void need_mlx5(const CheckedDevice& device);

}  // namespace heddle::cli
