// SPDX-License-Identifier: BSD-2-Clause
// The checks of `heddle check-hardware`: what heddle takes for granted of an adapter, its driver
// and the kernel, asked of those that are there. docs/reference/adapters.md says where each
// assumption comes from.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "verbs/handles.h"

namespace heddle::cli {

enum class Answer : std::uint8_t { kAsExpected, kDiffers, kNotAsked };
const char* text_of(Answer answer) noexcept;  // "as expected", "differs", "could not be asked"

struct Finding {
    Answer answer = Answer::kAsExpected;
    std::string seen;     // what was found, in a line
    std::string meaning;  // what that means for heddle
    nlohmann::ordered_json details = nlohmann::ordered_json::object();
};

// The device, and memory of this process that it may read and write.
class CheckedDevice {
public:
    static constexpr std::size_t kBytes = 1 << 18;

    explicit CheckedDevice(const std::string& name);  // throws VerbsError
    ibv_context* context() const noexcept { return context_.get(); }
    ibv_pd* pd() const noexcept { return pd_.get(); }
    std::byte* memory() noexcept { return memory_.data(); }
    std::uint64_t address(std::size_t at) noexcept {
        HEDDLE_ASSERT(at < kBytes, "the memory ends before");
        return reinterpret_cast<std::uintptr_t>(memory_.data() + at);
    }
    ibv_sge piece(std::size_t at, std::uint32_t bytes) noexcept {
        HEDDLE_ASSERT(at <= kBytes && bytes <= kBytes - at, "the memory ends before");
        return {address(at), bytes, mr_->lkey};
    }
    std::uint32_t key() const noexcept { return mr_->rkey; }

    const DeviceInfo info;

private:
    verbs::Context context_;
    verbs::ProtectionDomain pd_;
    std::vector<std::byte> memory_;
    verbs::MemoryRegion mr_;
};

struct HardwareCheck {
    const char* name;                       // "arm"
    const char* question;                   // in a line
    Finding (*run)(CheckedDevice& device);  // throws VerbsError: it could not be asked
};
std::span<const HardwareCheck> hardware_checks() noexcept;

// hardware_facts.cc: what driver and kernel tell.
Finding check_versions(CheckedDevice& device);
Finding check_device(CheckedDevice& device);
Finding check_port(CheckedDevice& device);
Finding check_registers(CheckedDevice& device);
Finding check_memory_events(CheckedDevice& device);
Finding check_rates(CheckedDevice& device);
// hardware_entries.cc: whether the direct path writes what libmlx5 writes.
Finding check_entries(CheckedDevice& device);
// hardware_events.cc: when a completion queue that was armed has its event.
Finding check_arm(CheckedDevice& device);
Finding check_repeated_arm(CheckedDevice& device);
// hardware_delivery.cc: order, place and numbers.
Finding check_order(CheckedDevice& device);
Finding check_scatter(CheckedDevice& device);
Finding check_numbers(CheckedDevice& device);

}  // namespace heddle::cli
