// SPDX-License-Identifier: BSD-2-Clause
// Traits of real adapters that the software one lacks by default. A test switches them on to run a
// program against the behaviour of hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "softhca/base/assert.h"

namespace softhca {

enum class DeviceTrait : std::uint8_t {
    kNoAtomics,
    kNoXrc,
    kNoDc,
    kNoDevx,
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

// One trait. A trait with `strict` holds for every ConnectX; the others are features that some
// devices lack.
struct DeviceTraitDeclaration {
    DeviceTrait trait;  // its place in the table
    const char* word;   // "no-xrc"
    bool strict;
    const char* help;  // what a device with this trait does
};

std::span<const DeviceTraitDeclaration> device_trait_declarations() noexcept;

// A set of traits, and the seed of random choices: lengths of pauses, orders of packets, and the
// traits of `random`.
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
        SOFTHCA_DEBUG_ASSERT(static_cast<unsigned>(trait) < 32);
        return static_cast<unsigned>(trait);
    }
    std::uint32_t bits_ = 0;
    std::uint64_t seed_ = 0;
};

// Reads a comma-separated list of words from left to right:
// - `kind`: no trait
// - `strict`: what every ConnectX does
// - `random:N`: a subset of the traits of `strict`, chosen by the number N, which is the seed, too
// - `seed:N`: the seed
// - a trait, which is added, or `-` and a trait, which is removed
// Returns false and leaves `*traits` unchanged if a word is none of these. Thread-safe.
bool read_device_traits(std::string_view text, DeviceTraits* traits) noexcept;

}  // namespace softhca
