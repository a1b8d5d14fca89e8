// SPDX-License-Identifier: BSD-2-Clause
// Fields of the structures in which firmware commands are written (the adapter's programmer's
// reference manual, PRM): big-endian words of 32 bits, whose bits count from the most significant
// one. libmlx5's mlx5_ifc.h names the same fields.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "softhca/base/assert.h"

namespace softhca::uverbs::prm {

// Within the word at byte `at` of a structure, `bits` bits from bit `from` on.
struct Field {
    std::uint16_t at;
    std::uint8_t from, bits;
};

class Structure {
public:
    explicit Structure(std::size_t bytes) : bytes_(bytes) {}

    std::byte* data() noexcept { return bytes_.data(); }
    const std::byte* data() const noexcept { return bytes_.data(); }
    std::size_t size() const noexcept { return bytes_.size(); }
    bool has(std::size_t end) const noexcept { return end <= bytes_.size(); }

    // The fields of a structure that is too short are zero.
    std::uint32_t get(Field field, std::size_t base = 0) const noexcept {
        return (word(base + field.at) >> shift(field)) & mask(field);
    }
    std::uint64_t get64(std::size_t at) const noexcept {
        return std::uint64_t{word(at)} << 32 | word(at + 4);
    }
    // What does not fit into a structure that is too short is lost, as the kernel truncates it.
    void set(Field field, std::uint32_t value, std::size_t base = 0) noexcept {
        SOFTHCA_DEBUG_ASSERT((value & ~mask(field)) == 0, "the value fits its field");
        const std::size_t at = base + field.at;
        if (!has(at + 4)) return;
        const std::uint32_t kept = word(at) & ~(mask(field) << shift(field));
        const std::uint32_t now = htobe32(kept | value << shift(field));
        std::memcpy(bytes_.data() + at, &now, sizeof now);
    }
    void set64(std::size_t at, std::uint64_t value) noexcept {
        set({static_cast<std::uint16_t>(at), 0, 32}, static_cast<std::uint32_t>(value >> 32));
        set({static_cast<std::uint16_t>(at + 4), 0, 32}, static_cast<std::uint32_t>(value));
    }

private:
    static std::uint32_t mask(Field field) noexcept {
        return field.bits == 32 ? ~0u : (1u << field.bits) - 1;
    }
    static unsigned shift(Field field) noexcept { return 32u - field.from - field.bits; }
    std::uint32_t word(std::size_t at) const noexcept {
        std::uint32_t value = 0;
        if (has(at + 4)) std::memcpy(&value, bytes_.data() + at, sizeof value);
        return be32toh(value);
    }

    std::vector<std::byte> bytes_;
};

// The head of every command and response.
inline constexpr Field kOpcode{0, 0, 16}, kOpMod{4, 16, 16};
inline constexpr Field kStatus{0, 0, 8};
inline constexpr Field kObjectNumber{8, 8, 24};
inline constexpr std::size_t kHeadBytes = 16;

enum class Opcode : std::uint32_t {
    kQueryHcaCap = 0x100,
    kCreateMkey = 0x200,
    kRts2Rts = 0x505,
    kCreateGeneralObject = 0xa00,
};

// MLX5_CMD_STAT_*
enum class Status : std::uint32_t {
    kOk = 0,
    kBadOperation = 2,
    kBadParameter = 3,
    kBadResource = 5,
    kNoResources = 0xf,
    kBadState = 0x10,
};

}  // namespace softhca::uverbs::prm
