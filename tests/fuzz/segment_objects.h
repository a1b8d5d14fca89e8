// SPDX-License-Identifier: BSD-2-Clause
// Objects that an input makes, asks for and destroys by commands, while the segment may be corrupt.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "softhca/device/segment.h"
#include "wqe_world.h"

namespace softhca::fuzz {

// A part of the segment that the input may corrupt.
struct Spot {
    void* at;
    std::size_t bytes;
    device::ObjectHead* head = nullptr;
};

template <class Object>
Spot spot_of(Object& object) {
    return {&object, sizeof object, &object.head};
}

// An object that the input made.
struct Extra {
    std::uint32_t destroy;  // the command
    std::uint32_t handle;
    Spot spot;
    std::atomic<std::uint32_t>* users;
    std::vector<std::byte> made;  // its record, as it was then
};
extern std::vector<Extra> extras;

void make_object(World& w, Input& input);
void destroy_one(World& w, Input& input);
// With every record as it was made, all can be destroyed.
void destroy_all(World& w);

// Queries or changes a queue, or opens an XRC domain.
void ask(World& w, Input& input);

}  // namespace softhca::fuzz
