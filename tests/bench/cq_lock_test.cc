// SPDX-License-Identifier: BSD-2-Clause
// A CQ that one thread polls has no lock on the verbs path; a CQ that threads share has one. This
// program's pthread_spin_lock() stands before libc's, and libmlx5 locks its queues by it.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "heddle/endpoint.h"

namespace {
std::atomic<int> locks{0};
}

extern "C" __attribute__((visibility("default"))) int pthread_spin_lock(pthread_spinlock_t* lock) {
    using Function = int (*)(pthread_spinlock_t*);
    static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_spin_lock"));
    locks.fetch_add(1, std::memory_order_relaxed);
    return next(lock);
}

namespace heddle {
namespace {

// How often polling an empty CQ and taking one completion locks.
int locks_of_polling(const Sharing& sharing, std::uint32_t threads) {
    EndpointSet set("", sharing, threads);
    set[0].connect(set[0].address());
    const ibv_sge payload{reinterpret_cast<std::uintptr_t>(set[0].buffer()), 8, set[0].mr()->lkey};
    post::WorkRequest request;
    request.opcode = post::Opcode::kWrite;
    request.flags = post::kSignaled;
    request.sges = {&payload, 1};
    request.remote_address = payload.addr + 64;
    request.remote_key = set[0].mr()->rkey;
    request.id = 7;
    EXPECT_EQ(set[0].post(request), post::Posted::kOk);
    locks.store(0);
    post::Completion done[4];
    unsigned found = 0;
    while ((found = set[0].poll(done, 4)) == 0) {
    }
    EXPECT_EQ(set[0].poll(done + 1, 3), 0u);
    EXPECT_EQ(found, 1u);
    EXPECT_EQ(done[0].id, 7u);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[0].opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(done[0].qpn, set[0].qp()->qp_num);
    return locks.load();
}

TEST(CompletionQueueLock, IsNotTakenIfOneThreadPolls) {
    EXPECT_EQ(locks_of_polling(sharing_of(Category::kDynamic, 2), 2), 0);
}

TEST(CompletionQueueLock, IsTakenIfThreadsShare) {
    Sharing sharing = sharing_of(Category::kDynamic, 2);
    sharing.cq = 2;
    EXPECT_GE(locks_of_polling(sharing, 2), 2);
}

// A request that fails has its status and the vendor's error by either way to poll.
TEST(CompletionQueueLock, ErrorsAreTheSameWithoutIt) {
    for (const std::uint32_t sharers : {1u, 2u}) {
        Sharing sharing = sharing_of(Category::kDynamic, 2);
        sharing.cq = sharers;
        EndpointSet set("", sharing, 2);
        set[0].connect(set[0].address());
        const ibv_sge payload{reinterpret_cast<std::uintptr_t>(set[0].buffer()), 8,
                              set[0].mr()->lkey};
        post::WorkRequest request;
        request.opcode = post::Opcode::kWrite;
        request.flags = post::kSignaled;
        request.sges = {&payload, 1};
        request.remote_address = payload.addr;
        request.remote_key = ~set[0].mr()->rkey;
        ASSERT_EQ(set[0].post(request), post::Posted::kOk);
        post::Completion done;
        while (set[0].poll(&done, 1) == 0) {
        }
        EXPECT_EQ(done.status, IBV_WC_REM_ACCESS_ERR) << sharers;
        EXPECT_NE(done.vendor_error, 0u) << sharers;
    }
}

}  // namespace
}  // namespace heddle
