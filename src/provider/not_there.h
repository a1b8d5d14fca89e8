// SPDX-License-Identifier: BSD-2-Clause
// For the entries of libfabric's tables that this provider does not have: a function of whatever
// type the entry is, which answers -FI_ENOSYS.
#pragma once

#include <rdma/fi_errno.h>

namespace heddle::provider {

struct NotThere {
    template <class Result, class... Arguments>
    using Function = Result (*)(Arguments...);

    template <class Result, class... Arguments>
    constexpr operator Function<Result, Arguments...>() const noexcept {
        return [](Arguments...) -> Result { return -FI_ENOSYS; };
    }
};
inline constexpr NotThere not_there;

}  // namespace heddle::provider
