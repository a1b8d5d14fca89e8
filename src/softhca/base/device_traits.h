// SPDX-License-Identifier: BSD-2-Clause
// What a real adapter may do and the software one need not: each freedom that hardware has (and
// takes) can be given to this device, too, so that programs meet it in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace softhca {

enum class DeviceTrait : std::uint8_t {
    kNoAtomics,
    kNoXrc,
    kNoRoceV1,
    kReuseNumbers,
    kPinned,
    kArm,
    kSharedUuar,
    kNoBlueFlame,
    kPackets,
    kReorder,
    kNoThreadDomains,
    kFewSges,
    kSmallInline,
    kNoCopyOnFork,
    kNoUserfaultfd,
    kAtomicBytes,
    kRnrTimers,
};

// One trait. Those of `strict` are what every ConnectX does; the others are what some devices lack.
struct DeviceTraitDeclaration {
    DeviceTrait trait;  // its place in the table
    const char* word;   // "no-xrc"
    bool strict;
    const char* help;  // what the device does then
};

std::span<const DeviceTraitDeclaration> device_trait_declarations() noexcept;

// A set of traits, and the seed that chooses where there is a choice: pauses, orders, and which
// traits `random` stands for.
class DeviceTraits {
public:
    bool has(DeviceTrait trait) const noexcept { return (bits_ >> bit(trait) & 1) != 0; }
    void set(DeviceTrait trait, bool on) noexcept {
        const std::uint32_t mask = std::uint32_t{1} << bit(trait);
        bits_ = on ? bits_ | mask : bits_ & ~mask;
    }
    std::uint64_t seed() const noexcept { return seed_; }
    void set_seed(std::uint64_t seed) noexcept { seed_ = seed; }
    bool operator==(const DeviceTraits&) const = default;

private:
    static constexpr unsigned bit(DeviceTrait trait) noexcept {
        return static_cast<unsigned>(trait);
    }
    std::uint32_t bits_ = 0;
    std::uint64_t seed_ = 0;
};

// Reads a list of words, divided by commas, from left to right: `kind` (no trait), `strict` (what
// every ConnectX does), `random:N` (each of those or not, as the number N says; N is the seed,
// too), `seed:N`, a trait, or a trait with `-` before it, which takes it away. False, and `*traits`
// unchanged, where a word is none of these. Thread-safe.
bool read_device_traits(std::string_view text, DeviceTraits* traits) noexcept;

}  // namespace softhca
