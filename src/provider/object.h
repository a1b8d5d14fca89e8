// SPDX-License-Identifier: BSD-2-Clause
// What all libfabric objects have in common. Each is the C structure to which the program holds a
// pointer, and our class derives from it. Each counts the references of other objects to it:
// closing a referenced object is refused with -FI_EBUSY.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "provider/ref_count.h"

namespace heddle::provider {

// The object behind a handle. T derives from its C structure T::Fid, which begins with `struct
// fid`. The caller knows from the handle's class that it is a T.
template <class T>
T& object(fid* handle) noexcept {
    return static_cast<T&>(*reinterpret_cast<typename T::Fid*>(handle));
}

inline void describe(fid& handle, std::size_t kind, void* context, fi_ops& ops) noexcept {
    handle.fclass = kind;
    handle.context = context;
    handle.ops = &ops;
}

}  // namespace heddle::provider
