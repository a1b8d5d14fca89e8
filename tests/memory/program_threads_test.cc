// SPDX-License-Identifier: BSD-2-Clause
// Is the caller the only thread of the program? Other threads and service threads come and go.
#include "memory/program_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>

namespace heddle::memory {
namespace {

#if !defined(__SANITIZE_THREAD__)  // its thread is none that glibc counts
TEST(ProgramThreads, OthersThatComeAndGo) {
    ProgramThreads::forget();
    const auto becomes = [](bool wanted) {
        for (int i = 0; i < 100'000; ++i)
            if (ProgramThreads::only_caller() == wanted) return true;
        return false;
    };
    ASSERT_TRUE(becomes(true));
    EXPECT_TRUE(ProgramThreads::only_caller());
    std::atomic<bool> end{false};
    std::thread other([&] { end.wait(false); });
    for (int i = 0; i < 10'000; ++i)
        ASSERT_FALSE(ProgramThreads::only_caller());
    end = true;
    end.notify_all();
    other.join();
    EXPECT_TRUE(becomes(true));
    std::thread service([&] { end.wait(true); });
    pthread_setname_np(service.native_handle(), "heddle-test");
    EXPECT_TRUE(becomes(true)) << "a service thread counts for nothing";
    {
        const ProgramThreads::ServiceUnmaps unmaps;
        for (int i = 0; i < 10'000; ++i)
            ASSERT_FALSE(ProgramThreads::only_caller()) << "a service thread may unmap memory";
    }
    EXPECT_TRUE(becomes(true));
    end = false;
    end.notify_all();
    service.join();
    ProgramThreads::forget();
}
#endif

}  // namespace
}  // namespace heddle::memory
