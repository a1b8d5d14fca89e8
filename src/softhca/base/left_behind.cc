// SPDX-License-Identifier: BSD-2-Clause
// The list of a parent's objects that its child keeps: see left_behind.h.
#include "softhca/base/left_behind.h"

#include <new>

#include "softhca/base/assert.h"

namespace softhca {
namespace {

struct Left {
    const void* object;
    const Left* before;
};
const Left* g_left = nullptr;

}  // namespace

void leave_behind(const void* object) noexcept {
    if (!object) return;
    SOFTHCA_ASSERT(!g_left || g_left->object != object, "an object is left behind once");
    if (const auto* left = new (std::nothrow) Left{object, g_left}) g_left = left;
}

}  // namespace softhca
