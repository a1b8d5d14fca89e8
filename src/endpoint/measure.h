// SPDX-License-Identifier: BSD-2-Clause
// Measures what a set of verbs objects uses: the difference of the process's state before and after
// their creation.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>

#include "endpoint/uar_pages.h"
#include "heddle/usage.h"

namespace heddle::endpoint {

// Returns the register that a QP rings; nullptr if the device is not an mlx5.
const void* uuar_of(ibv_qp* qp) noexcept;

class Measurement {
public:
    Measurement();  // records the state before
    // Sets what the kernel and the driver report. The caller sets the counts of objects.
    void finish(std::span<ibv_qp* const> qps, std::span<ibv_cq* const> cqs, Usage& usage) const;

private:
    UarPages pages_;
    std::size_t heap_;
};

}  // namespace heddle::endpoint
