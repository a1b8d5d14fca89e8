// SPDX-License-Identifier: BSD-2-Clause
// The application's end of an object. CREATE commands carry its address as user_handle, which the
// kernel never looks at; we do, to wrap the functions of its context, and so must not trust it.
#pragma once

#include <cstdint>

#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// Is this the address of an ibv_cq or ibv_qp whose context is the one that the command came from?
// `bytes`: how much of it will be touched.
bool is_user_object(const DeviceContext& context, std::uint64_t user_handle,
                    std::size_t bytes) noexcept;

}  // namespace softhca::uverbs
