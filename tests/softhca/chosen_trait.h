// SPDX-License-Identifier: BSD-2-Clause
// Whether the device of this test has a trait: SOFTHCA_DEVICE says so to it, too. And what it does
// to memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

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

// Without userfaultfd no store of another thread can be held back, so pages are shared only if
// there is no other thread; ThreadSanitizer has one of its own. The pages are then the kernel's,
// which frees lazily.
inline bool memory_stays_private() {
#ifdef __SANITIZE_THREAD__
    if (chosen(DeviceTrait::kNoUserfaultfd)) return true;
#endif
    const char* const memory = std::getenv("SOFTHCA_MEMORY");
    return memory != nullptr && std::strcmp(memory, "auto") != 0;
}

}  // namespace softhca::test
