// SPDX-License-Identifier: BSD-2-Clause
// Whether the device of this test has a trait: SOFTHCA_DEVICE says so to it, too.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "softhca/base/device_traits.h"

namespace softhca::test {

inline bool chosen(DeviceTrait trait) {
    const char* const text = std::getenv("SOFTHCA_DEVICE");
    DeviceTraits traits;
    if (text != nullptr) {
        EXPECT_TRUE(read_device_traits(text, &traits)) << text;
    }
    return traits.has(trait);
}

}  // namespace softhca::test
