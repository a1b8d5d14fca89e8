// SPDX-License-Identifier: BSD-2-Clause
// An endpoint that is closed as soon as its sends have completed: every message whose send was
// complete arrives, whatever way it travels and however late its receive is posted.
#include <atomic>
#include <thread>

#include "tests/provider/fi_tuples.h"

namespace heddle::test {
namespace {

class Closing : public EachWay {
protected:
    static constexpr std::size_t kSmall = 1000;

    Closing() {
        // Connections to an endpoint that is closed may break: each has one of its own.
        setenv("FI_HEDDLE_ENDPOINTS", "mpi-everywhere", 1);
    }
    // In a thread, as fi_close may have to wait for the receiver, which is looked after here.
    std::thread close(std::size_t which, std::atomic<bool>& done) {
        return std::thread([closing = std::move(ends_[which]), &done]() mutable {
            closing.reset();
            done = true;
        });
    }
    // The sender closes at once; the receiver posts its receives after it has seen for a while that
    // nothing is there for the messages.
    void close_then_receive(const std::vector<std::size_t>& sizes) {
        for (const SentMessage& message : sent_)
            ASSERT_NO_FATAL_FAILURE(wait(message));
        std::atomic<bool> done{false};
        std::thread closer = close(0, done);
        const auto late = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
        while (std::chrono::steady_clock::now() < late)
            look();
        for (const std::size_t bytes : sizes)
            post(1, 0, 5, bytes);
        for (const Posted& receive : posted_)
            wait(receive);
        EXPECT_TRUE(until([&] { return done.load(); }));
        closer.join();
        check_all();
    }
};

TEST_P(Closing, AfterSmallMessages) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    const std::vector<std::size_t> sizes(5, kSmall);
    for (const std::size_t bytes : sizes)
        send(0, 1, 5, bytes);
    close_then_receive(sizes);
}

TEST_P(Closing, AfterInjectedMessages) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    const std::vector<std::size_t> sizes(40, 100);
    for (const std::size_t bytes : sizes)
        send(0, 1, 5, bytes, true);
    close_then_receive(sizes);
}

// The messages exceed what the receiver keeps unexpected: the rest waits in the sender.
TEST_P(Closing, AfterMoreThanTheReceiverKeeps) {
    setenv("FI_HEDDLE_UNEXPECTED_SIZE", "4096", 1);
    setenv("FI_HEDDLE_INJECT_SIZE", "512", 1);
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    const std::vector<std::size_t> sizes(40, 512);
    for (const std::size_t bytes : sizes)
        send(0, 1, 5, bytes, true);
    close_then_receive(sizes);
}

// Nobody has ever been connected.
TEST_P(Closing, BeforeThereIsAConnection) {
    open(2);
    const std::vector<std::size_t> sizes(3, 100);
    for (const std::size_t bytes : sizes)
        send(0, 1, 5, bytes, true);
    close_then_receive(sizes);
}

// Messages that nobody will ever receive keep neither side: both say so when they close.
TEST_P(Closing, OfBothWithMessagesForEachOther) {
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    ASSERT_NO_FATAL_FAILURE(warm(1, 0, 6));
    for (int i = 0; i < 5; ++i) {
        send(0, 1, 5, kSmall);
        send(1, 0, 6, kSmall);
    }
    for (const SentMessage& message : sent_)
        ASSERT_NO_FATAL_FAILURE(wait(message));
    std::atomic<bool> done[2] = {};
    std::thread closers[2] = {close(0, done[0]), close(1, done[1])};
    EXPECT_TRUE(until([&] { return done[0] && done[1]; }));
    for (std::thread& closer : closers)
        closer.join();
}

// A receiver that never comes is waited for as long as it was asked, and that is said.
TEST_P(Closing, GivesUpAfterTheTimeout) {
    setenv("FI_HEDDLE_CLOSE_TIMEOUT", "1", 1);
    open(2);
    ASSERT_NO_FATAL_FAILURE(warm(0, 1, 5));
    for (int i = 0; i < 5; ++i)
        send(0, 1, 5, kSmall);
    for (const SentMessage& message : sent_)
        ASSERT_NO_FATAL_FAILURE(wait(message));
    std::atomic<bool> done{false};
    testing::internal::CaptureStderr();
    std::thread closer = close(0, done);
    EXPECT_TRUE(until([&] { return done.load(); }));
    closer.join();
    const std::string said = testing::internal::GetCapturedStderr();
    if (by_tuples()) {
        EXPECT_NE(said.find("5 messages are lost"), std::string::npos) << said;
        EXPECT_NE(said.find("FI_HEDDLE_CLOSE_TIMEOUT"), std::string::npos) << said;
    }
    forget();
}

INSTANTIATE_TEST_SUITE_P(By, Closing,
                         testing::Values("tupleq", "tupleq_verbs", "auto", "rget", "rput"),
                         name_of_way);

}  // namespace
}  // namespace heddle::test
