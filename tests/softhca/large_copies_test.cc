// SPDX-License-Identifier: BSD-2-Clause
// Large copies where program and progress thread have one processor (engine/late_wake.h): a program
// that polls makes them itself, and one that does not, or sleeps, has them made all the same.
#include <dirent.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLargeCopy = 1 << 16;

// The tasks of this process.
template <class Each>
void for_each_task(const Each& each) {
    DIR* const tasks = opendir("/proc/self/task");
    ASSERT_NE(tasks, nullptr);
    while (const dirent* const task = readdir(tasks))
        if (const pid_t number = std::atoi(task->d_name); number != 0) each(number);
    closedir(tasks);
}

// How often the progress thread has gone to sleep.
std::uint64_t sleeps_of_progress_thread() {
    std::uint64_t sleeps = 0;
    for_each_task([&](pid_t task) {
        const std::string folder = "/proc/self/task/" + std::to_string(task);
        std::string name, word;
        std::ifstream(folder + "/comm") >> name;
        if (name != "softhca") return;
        std::ifstream status(folder + "/status");
        while (status >> word)
            if (word == "voluntary_ctxt_switches:") status >> sleeps;
    });
    return sleeps;
}

class LargeCopies : public testing::Test {
protected:
    LargeCopies() {
        Endpoint::Options options;
        options.events = true;
        options.memory = 2 * kLargeCopy;
        pair.emplace(options);
        CPU_ZERO(&before_);
        sched_getaffinity(0, sizeof before_, &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
        for_each_task([&](pid_t task) { EXPECT_EQ(sched_setaffinity(task, sizeof one, &one), 0); });
    }
    ~LargeCopies() override {
        for_each_task([&](pid_t task) { sched_setaffinity(task, sizeof before_, &before_); });
    }
    Work write() {
        Work work;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.flags = IBV_SEND_SIGNALED;
        work.sges = {pair->a.memory->sge(0, kLargeCopy)};
        work.remote = pair->b.memory->address();
        return work;
    }
    void run(unsigned writes) {
        for (unsigned i = 0; i < writes; ++i)
            ASSERT_TRUE(pair->a.run(write()));
    }

    std::optional<Pair> pair;

private:
    cpu_set_t before_;
};

// Without the late wake the thread is woken for each of them. It looks by itself each 100 us, so
// what is counted depends on the machine: one round of some is enough.
TEST_F(LargeCopies, DoNotWakeTheThreadOfAProgramThatPolls) {
    const char* const engine = std::getenv("SOFTHCA_ENGINE");
    if (engine != nullptr && std::strcmp(engine, "hybrid") != 0)
        GTEST_SKIP() << "the engine is " << engine;
    constexpr std::uint64_t kWrites = 50;
    bool are_few = false;
    for (int round = 0; round < 500 && !are_few; ++round) {
        const std::uint64_t before = sleeps_of_progress_thread();
        const auto begin = Clock::now();
        for (unsigned i = 0; i < kWrites; ++i) {
            ASSERT_EQ(pair->a.post(write()), 0);
            std::this_thread::yield();  // a thread that was woken runs now
            ASSERT_TRUE(succeeded(pair->a.wait_send()));
        }
        const auto looks = static_cast<std::uint64_t>((Clock::now() - begin) / 100us);
        are_few = sleeps_of_progress_thread() - before < kWrites / 4 + looks;
    }
    EXPECT_TRUE(are_few);
}

// Also one that comes while the thread ends its watch.
TEST_F(LargeCopies, AreMadeForAProgramThatDoesNotPoll) {
    std::mt19937 random(1);
    std::uniform_int_distribution<int> pause(0, 4000);
    for (unsigned i = 1; i <= 200; ++i) {
        run(i % 3);
        pair->a.memory->fill(0, kLargeCopy, i);
        ASSERT_EQ(pair->a.post(write()), 0);
        const volatile std::uint8_t* const last = pair->b.memory->data() + kLargeCopy - 1;
        const auto end = Clock::now() + kDeadline;
        while (*last != pattern(i, kLargeCopy - 1) && Clock::now() < end)
            if (i % 2 != 0) std::this_thread::yield();
        ASSERT_TRUE(pair->b.memory->holds(0, kLargeCopy, i)) << "write " << i;
        ASSERT_TRUE(succeeded(pair->a.wait_send()));
        std::this_thread::sleep_for(std::chrono::microseconds(pause(random)));
    }
}

// It arms its CQ before the write, or after it.
TEST_F(LargeCopies, AreMadeForAProgramThatSleeps) {
    for (unsigned i = 1; i <= 200; ++i) {
        run(3);
        pair->a.memory->fill(0, kLargeCopy, i);
        ibv_cq* const cq = pair->a.send_cq.get();
        if (i % 2 == 0) {
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
        }
        ASSERT_EQ(pair->a.post(write()), 0);
        if (i % 2 != 0) {
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
        }
        pollfd event = {pair->a.channel->fd, POLLIN, 0};
        ASSERT_EQ(poll(&event, 1, 30'000), 1) << "write " << i;
        ibv_cq* of = nullptr;
        void* user = nullptr;
        ASSERT_EQ(ibv_get_cq_event(pair->a.channel.get(), &of, &user), 0);
        ibv_ack_cq_events(of, 1);
        ASSERT_TRUE(succeeded(pair->a.wait_send()));
        ASSERT_TRUE(pair->b.memory->holds(0, kLargeCopy, i));
    }
}

}  // namespace
}  // namespace softhca::test
