// SPDX-License-Identifier: BSD-2-Clause
// Event queues: what is written is read, peeked at, waited for.
#include <poll.h>

#include <thread>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

class EventQueues : public ::testing::Test {
protected:
    World world;
    Opened<fid_eq> open(std::uint64_t flags, fi_wait_obj wait = FI_WAIT_UNSPEC) {
        fi_eq_attr attributes{};
        attributes.flags = flags;
        attributes.wait_obj = wait;
        return opened<fid_eq>("fi_eq_open", [&](fid_eq** out) {
            return fi_eq_open(world.fabric.get(), &attributes, out, nullptr);
        });
    }
    static void write(fid_eq* eq, std::uint64_t data) {
        const fi_eq_entry entry{nullptr, nullptr, data};
        ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0),
                  static_cast<ssize_t>(sizeof entry));
    }
    static ssize_t read(fid_eq* eq, std::uint64_t* data, std::uint64_t flags = 0) {
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        const ssize_t got = fi_eq_read(eq, &event, &entry, sizeof entry, flags);
        *data = entry.data;
        return got;
    }
};

TEST_F(EventQueues, WhatIsWrittenIsRead) {
    const auto eq = open(FI_WRITE);
    std::uint64_t data = 0;
    EXPECT_EQ(read(eq.get(), &data), -FI_EAGAIN);
    write(eq.get(), 1);
    write(eq.get(), 2);
    EXPECT_GT(read(eq.get(), &data, FI_PEEK), 0);
    EXPECT_EQ(data, 1u);
    EXPECT_GT(read(eq.get(), &data), 0);
    EXPECT_EQ(data, 1u);
    EXPECT_GT(read(eq.get(), &data), 0);
    EXPECT_EQ(data, 2u);
    EXPECT_EQ(read(eq.get(), &data), -FI_EAGAIN);
    fi_eq_err_entry error{};
    EXPECT_EQ(fi_eq_readerr(eq.get(), &error, 0), -FI_EAGAIN);
}

TEST_F(EventQueues, TooLittleRoom) {
    const auto eq = open(FI_WRITE);
    write(eq.get(), 1);
    std::uint32_t event;
    char room[4];
    EXPECT_EQ(fi_eq_read(eq.get(), &event, room, sizeof room, 0), -FI_ETOOSMALL);
    std::uint64_t data = 0;
    EXPECT_GT(read(eq.get(), &data), 0);
}

TEST_F(EventQueues, NotForWriting) {
    const auto eq = open(0);
    const fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_write(eq.get(), FI_NOTIFY, &entry, sizeof entry, 0), -FI_EINVAL);
}

TEST_F(EventQueues, Sleeping) {
    const auto eq = open(FI_WRITE);
    std::uint32_t event;
    fi_eq_entry entry{};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 50, 0), -FI_EAGAIN);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 49ms);
    std::thread writer([&] {
        std::this_thread::sleep_for(50ms);
        write(eq.get(), 7);
    });
    EXPECT_GT(fi_eq_sread(eq.get(), &event, &entry, sizeof entry, 20'000, 0), 0);
    EXPECT_EQ(entry.data, 7u);
    writer.join();
}

TEST_F(EventQueues, FileDescriptor) {
    const auto eq = open(FI_WRITE, FI_WAIT_FD);
    int fd = -1;
    ASSERT_EQ(fi_control(eq.handle(), FI_GETWAIT, &fd), 0);
    fid* handles[] = {eq.handle()};
    EXPECT_EQ(fi_trywait(world.fabric.get(), handles, 1), 0);
    pollfd wanted{fd, POLLIN, 0};
    EXPECT_EQ(poll(&wanted, 1, 0), 0);
    write(eq.get(), 1);
    EXPECT_EQ(poll(&wanted, 1, 0), 1);
    EXPECT_EQ(fi_trywait(world.fabric.get(), handles, 1), -FI_EAGAIN);
    std::uint64_t data;
    EXPECT_GT(read(eq.get(), &data), 0);
    EXPECT_EQ(poll(&wanted, 1, 0), 0);
}

TEST_F(EventQueues, Texts) {
    const auto eq = open(0);
    char text[64] = "";
    EXPECT_STREQ(fi_eq_strerror(eq.get(), FI_EINVAL, nullptr, text, sizeof text),
                 "Invalid argument");
    EXPECT_STREQ(text, "Invalid argument");
}

}  // namespace
}  // namespace heddle::test
