// SPDX-License-Identifier: BSD-2-Clause
// A send request that waits: the buffers of an injected message are the application's again at
// once.
#include "protocol/core/requests.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::protocol {
namespace {

TEST(SendRequest, CopiesItsBuffersInTheirOrder) {
    std::string first = "one", empty, last = "three!";
    const iovec buffers[] = {{first.data(), 3}, {empty.data(), 0}, {last.data(), 6}};
    int descriptor = 0;
    void* const descriptors[] = {&descriptor, nullptr, nullptr};
    SendRequest request;
    request.bytes = 9;
    request.set_buffers(buffers, 3, descriptors);
    EXPECT_EQ(request.iov_count, 3u);
    EXPECT_EQ(request.descriptors[0], &descriptor);
    request.copy_buffers();
    first = "xxx", last = "yyyyyy";  // the application uses them again
    ASSERT_EQ(request.iov_count, 1u);
    ASSERT_EQ(request.iov[0].iov_len, 9u);
    EXPECT_EQ(std::string(static_cast<const char*>(request.iov[0].iov_base), 9), "onethree!");
    EXPECT_EQ(request.descriptors[0], nullptr) << "it is of the application's memory";
}

}  // namespace
}  // namespace heddle::protocol
