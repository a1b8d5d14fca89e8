// SPDX-License-Identifier: BSD-2-Clause
// The value for an entry of a libfabric function table that this provider does not support: it
// converts to a function of the entry's type that returns -FI_ENOSYS.
#pragma once

#include <rdma/fi_errno.h>

namespace heddle::provider {

struct Unsupported {
    template <class Result, class... Arguments>
    using Function = Result (*)(Arguments...);

    template <class Result, class... Arguments>
    constexpr operator Function<Result, Arguments...>() const noexcept {
        return [](Arguments...) -> Result { return -FI_ENOSYS; };
    }
};
inline constexpr Unsupported unsupported;

}  // namespace heddle::provider
