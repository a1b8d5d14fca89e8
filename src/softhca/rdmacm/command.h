// SPDX-License-Identifier: BSD-2-Clause
// One command of rdma_cm, as its function gets it: see commands.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "softhca/rdmacm/locked.h"
#include "softhca/uverbs/command.h"

namespace softhca::rdmacm {

constexpr std::size_t kMostBytes = 512;  // every command is shorter

struct Command {
    device::Fabric& fabric;
    std::uint32_t channel;
    bool is_rung;
    std::uint16_t room;  // bytes of the answer that the program has room for
    std::size_t bytes;
    std::array<std::byte, kMostBytes> in{};

    // The command; fields that the program has not sent are 0.
    template <class T>
    T as() const noexcept {
        static_assert(sizeof(T) <= kMostBytes);
        T out;
        std::memcpy(&out, in.data(), sizeof out);
        return out;
    }
    int answer(std::uint64_t where, const void* from, std::size_t size,
               std::size_t least) const noexcept {
        if (room < least) return ENOSPC;
        return uverbs::copy_out(where, from, std::min<std::size_t>(size, room)) ? EFAULT : 0;
    }
    template <class T>
    int answer(std::uint64_t where, const T& from) const noexcept {
        return answer(where, &from, sizeof from, sizeof from);
    }
};

// Runs `body(Locked&, CmId&)` with the id of that number.
template <class Body>
int with_id(const Command& command, std::uint32_t number, const Body& body) noexcept {
    Locked connections(command.fabric);
    if (!connections) return EAGAIN;
    CmId* id = nullptr;
    if (const int error = connections.find(number, command.channel, &id)) return error;
    return body(connections, *id);
}

}  // namespace softhca::rdmacm
