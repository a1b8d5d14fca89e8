// SPDX-License-Identifier: BSD-2-Clause
// What all libfabric objects have in common. Each is the C structure to which the program holds a
// pointer, and our class derives from it. Each counts the references of other objects to it:
// closing a referenced object is refused with -FI_EBUSY.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "heddle/detail/assert.h"
#include "provider/ref_count.h"

namespace heddle::provider {

// The object behind a handle. T derives from its C structure T::Fid, which begins with `struct
// fid`. The caller knows from the handle's class that it is a T.
template <class T>
T& object(fid* handle) noexcept {
    return static_cast<T&>(*reinterpret_cast<typename T::Fid*>(handle));
}

// Sets what all handles have: class, the program's context, and the table of fi_close(3) and
// friends.
inline void describe(fid& handle, std::size_t kind, void* context, fi_ops& ops) noexcept {
    HEDDLE_ASSERT(handle.ops == nullptr, "a handle is described once");
    handle.fclass = kind;
    handle.context = context;
    handle.ops = &ops;
}

}  // namespace heddle::provider
