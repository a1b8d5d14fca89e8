// SPDX-License-Identifier: BSD-2-Clause
// What `heddle top` makes of a segment that a process shows of itself, in which nothing can be
// trusted: any bytes behind a header that is mostly good.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "provider/live_format.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace heddle::provider;
    if (size == 0) return 0;
    const bool good_header = data[0] & 1;
    const std::size_t bytes = size - 1;
    // The memory has exactly that size, so that the sanitizer finds a read beyond its end.
    auto* const segment = static_cast<std::byte*>(std::malloc(bytes));
    if (bytes != 0) std::memcpy(segment, data + 1, bytes);
    if (good_header && bytes >= sizeof(LiveHeader)) {
        const LiveHeader good;
        std::memcpy(segment, &good, offsetof(LiveHeader, slots));
    }
    if (const auto process = read_live({segment, bytes})) {
        if (process->endpoints.size() > bytes / sizeof(LiveSlot))
            softhca::fuzz::fail("more endpoints than bytes");
        for (const std::string* const text : {&process->device, &process->category, &process->rank})
            for (const char c : *text)
                if (c < ' ' || c > '~') softhca::fuzz::fail("a character that moves the cursor");
    }
    std::free(segment);
    return 0;
}
