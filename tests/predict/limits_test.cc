// SPDX-License-Identifier: BSD-2-Clause
// One resource limits, all others cost nothing: then the rate is known exactly.
#include <gmock/gmock.h>

#include "machines.h"
#include "predict/simulator.h"

namespace heddle::predict {
namespace {

constexpr double kRounding = 0.008;  // of the messages that are under way when the clock stops

Simulated simulated_for_long(const Workload& work, const Machine& machine) {
    return simulate(work, machine, 4000e3, 100e3);
}

void expect_rate(const Workload& work, const Machine& machine, double per_microsecond,
                 Resource limit) {
    const Simulated simulated = simulated_for_long(work, machine);
    EXPECT_NEAR(simulated.per_microsecond / per_microsecond, 1, kRounding);
    EXPECT_EQ(name(simulated.busiest()), name(limit));
    EXPECT_GT(simulated.used(limit), 0.99);
}

TEST(PredictLimits, TheLink) {
    Machine machine = free_machine();
    machine.link = 10;
    expect_rate(independent(16), machine, 100, Resource::kLink);
    expect_rate(independent(1), machine, 100, Resource::kLink);
}

TEST(PredictLimits, TheEngineOfEachQueuePair) {
    Machine machine = free_machine();
    machine.qp_wqe = 50;
    expect_rate(independent(1), machine, 20, Resource::kEngine);
    expect_rate(independent(4), machine, 80, Resource::kEngine);
    machine.qp_completion = 64;  // one message in 64 has a completion
    expect_rate(independent(1), machine, 1000.0 / 51, Resource::kEngine);
}

TEST(PredictLimits, TheProcessorOfEachThread) {
    Machine machine = free_machine();
    machine.prepare = 100;
    machine.post_call = 320;  // of 32 messages
    expect_rate(independent(1), machine, 1000.0 / 110, Resource::kProcessor);
    expect_rate(independent(3), machine, 3000.0 / 110, Resource::kProcessor);
    machine.own_completion = 640;  // of 64 messages
    expect_rate(independent(2), machine, 2000.0 / 120, Resource::kProcessor);
}

TEST(PredictLimits, WhatAKernelDoesForEachMessage) {
    Machine machine = free_machine();
    machine.prepare = 100;
    Workload work = independent(2);
    work.post_list = work.signal_every = 1;
    work.message_extra = 99;
    expect_rate(work, machine, 2000.0 / 200, Resource::kProcessor);
}

TEST(PredictLimits, BlueFlameTakesLongerOnASharedPage) {
    Machine machine = free_machine();
    machine.post_call = 100;
    Workload work = independent(2);
    work.post_list = work.signal_every = 1;
    for (ThreadPlan& plan : work.threads)
        plan.queues.front().blueflame_extra = 60;
    expect_rate(work, machine, 2000.0 / 160, Resource::kProcessor);
    work.post_list = work.signal_every = 2;  // a list rings the doorbell, which needs no BlueFlame
    expect_rate(work, machine, 4000.0 / 100, Resource::kProcessor);
}

TEST(PredictLimits, ReadsOfOneCacheLineFollowEachOther) {
    Machine machine = free_machine();
    machine.same_line = 40;
    machine.payload_read = 5;
    Workload work = independent(8);
    work.inlined = false;
    expect_rate(work, machine, 200, Resource::kPayloadReads);
    for (ThreadPlan& plan : work.threads)
        plan.payload_line = 0;
    expect_rate(work, machine, 25, Resource::kCacheLine);
    work.inlined = true;
    EXPECT_GT(simulated_for_long(work, machine).per_microsecond, 1000);
}

TEST(PredictLimits, AUnitFetchesForEightQueuePairs) {
    Machine machine = free_machine();
    machine.fetch_unit = 25;
    Workload work = independent(8);
    work.inlined = false;
    // Times are exponential: of 10 000 of them the mean is off by 1 %.
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 40, 1.2);
    work = independent(16);
    work.inlined = false;
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 80, 2.4);
}

TEST(PredictLimits, TheLockOfASharedQueuePair) {
    Machine machine = free_machine();
    machine.post_call = 50;
    machine.prepare = 10;
    machine.lock_transfer = 90;
    Workload work = independent(4);
    work.post_list = work.signal_every = 1;
    for (ThreadPlan& plan : work.threads)
        plan.queues.front().qp = 0;
    expect_rate(work, machine, 1000.0 / 150, Resource::kQpLock);
    // Two more threads spin when it passes on, as one of four gets it and one holds it.
    machine.qp_lock_waiter = 30;
    expect_rate(work, machine, 1000.0 / 210, Resource::kQpLock);
}

TEST(PredictLimits, TheLockOfARegisterIsNotHeldWhileAMessageIsWritten) {
    Machine machine = free_machine();
    machine.post_call = 50;
    machine.prepare = 10;
    machine.lock_transfer = 90;
    Workload work = independent(4);
    work.post_list = work.signal_every = 1;
    for (ThreadPlan& plan : work.threads)
        plan.queues.front().uuar_lock = 0;
    expect_rate(work, machine, 1000.0 / 140, Resource::kUuarLock);
}

TEST(PredictLimits, ACompletionOfEachMessageBeforeTheNext) {
    Machine machine = free_machine();
    machine.post_call = 100;
    machine.qp_wqe = 50;
    machine.completion_latency = 1000;
    machine.own_completion = 50;
    Workload work = independent(1);
    work.post_list = work.signal_every = work.depth = 1;
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 1000.0 / 1200, 0.005);
    // A doorbell has the adapter fetch the request.
    machine.dma_latency = 500;
    work.post_list = work.signal_every = work.depth = 2;
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 2000.0 / 1750, 0.005);
}

TEST(PredictLimits, ABarrierTakesLongerTheMoreThreadsMeet) {
    Machine machine = free_machine();
    machine.prepare = 99;
    machine.barrier = 500;
    Workload work = independent(4);
    work.post_list = work.signal_every = 1;
    work.rows = 10;
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 40.0 / 2.0,
                0.1);  // 10 * 100 + 2 * 500
    work.threads.resize(1);
    EXPECT_NEAR(simulated_for_long(work, machine).per_microsecond, 10, 0.1);
}

}  // namespace
}  // namespace heddle::predict
