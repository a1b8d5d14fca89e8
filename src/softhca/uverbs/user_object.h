// SPDX-License-Identifier: BSD-2-Clause
// The application's part of an object. CREATE commands carry its address as user_handle. The kernel
// never looks at it. We do, to wrap the functions of its context, so we must not trust it.
#pragma once

#include <cstdint>

#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// Whether this is the address of an ibv_cq or ibv_qp whose context is the one that sent the
// command. `bytes`: how much of the object will be accessed.
bool is_user_object(const DeviceContext& context, std::uint64_t user_handle,
                    std::size_t bytes) noexcept;

}  // namespace softhca::uverbs
