// SPDX-License-Identifier: BSD-2-Clause
// The main() of all GoogleTest binaries: 77, which ctest shows as "skipped", where every case that
// ran was skipped, so that a suite which examines nothing is not taken for one that passed.
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in cmake/HeddleTesting.cmake
[[maybe_unused]] const pid_t kTestProcess = getpid();

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// Asked by LeakSanitizer at exit. A forked child is not examined: gcc 12's libasan does not take
// its locks at fork, so a child can wait for one for ever that another thread of its parent had
// (LockAllocator in DoLeakCheck; google/sanitizers issues 774 and 836).
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() {
    return getpid() != kTestProcess;
}
#endif

int main(int argc, char** argv) {
    testing::InitGoogleMock(&argc, argv);
    const int status = RUN_ALL_TESTS();
    const auto& all = *testing::UnitTest::GetInstance();
    const bool only_skipped = all.skipped_test_count() > 0 && all.successful_test_count() == 0 &&
                              all.failed_test_count() == 0;
    return status == 0 && only_skipped ? kSkipped : status;
}
