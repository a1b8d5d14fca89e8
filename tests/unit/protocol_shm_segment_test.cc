// SPDX-License-Identifier: BSD-2-Clause
// Memory that processes share, and that one reads of another: what a peer offers is opened only if
// it is a ring, and memory of a process that is another one, or has closed its ring, is not
// believed.
#include "protocol/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/shm/host.h"
#include "protocol/shm/process_memory.h"
#include "tests/unit/protocol_shm_support.h"

namespace heddle::protocol::test {
namespace {

// The errno with which opening fails, or 0.
int error_of(const ShmOpenBody& body) {
    try {
        const ShmSegment opened(body);
        return 0;
    } catch (const std::system_error& error) {
        return error.code().value();
    }
}

TEST(ShmSegments, BothSidesSeeTheSameMemory) {
    ShmSegment made(kSmallRing);
    EXPECT_EQ(made.answer(), ShmControl::kNone);
    ShmSegment opened(made.body());
    ShmSender sender(made.memory(), kSmallRing, false);
    ShmReceiver receiver(opened.memory(), opened.shape());
    ASSERT_TRUE(write_message(sender, Header{Kind::kEager, 0, 1, 2, 3, 4}));
    ShmReceiver::Found found;
    ASSERT_EQ(receiver.next(found), ShmReceiver::Next::kMessage);
    EXPECT_EQ(found.bytes.size(), sizeof(Header));

    opened.accept(true, false);
    EXPECT_EQ(made.answer(), ShmControl::kAccepted);
    EXPECT_TRUE(sender.is_memory_read());
    EXPECT_TRUE(made.must_sender_fence());
    opened.accept(false, true);
    EXPECT_FALSE(sender.is_memory_read());
    EXPECT_FALSE(made.must_sender_fence());
    opened.refuse();
    EXPECT_EQ(made.answer(), ShmControl::kRefused);
}

TEST(ShmSegments, AreOpenedWhileTheDescriptorIsOpen) {
    ShmSegment made(kSmallRing);
    const ShmOpenBody body = made.body();
    EXPECT_EQ(error_of(body), 0);
    made.close_descriptor();
    EXPECT_NE(error_of(body), 0);
}

TEST(ShmSegments, OfAProcessThatIsGoneAreNotOpened) {
    ShmOpenBody body = ShmSegment(kSmallRing).body();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    body.process = static_cast<std::uint32_t>(child);
    EXPECT_EQ(error_of(body), ENOENT);
}

TEST(ShmSegments, AnotherRingIsNotOpened) {
    ShmSegment made(kSmallRing);
    ShmOpenBody body = made.body();
    ++body.nonce;
    EXPECT_EQ(error_of(body), EPROTO);
    body = made.body();
    body.area_bytes *= 2;
    EXPECT_EQ(error_of(body), EPROTO) << "it is not that long";
    control_of(made.memory()).constants.shape.slots *= 2;
    EXPECT_EQ(error_of(made.body()), EPROTO);
    control_of(made.memory()).constants.shape = kSmallRing;
    EXPECT_EQ(error_of(made.body()), 0);
    control_of(made.memory()).constants.version = 99;
    EXPECT_EQ(error_of(made.body()), EPROTO);
}

// What a peer names may be any file of its process.
class ForeignFiles : public ::testing::Test {
protected:
    ForeignFiles() : made_(kSmallRing) {}
    ~ForeignFiles() override {
        if (fd_ >= 0) close(fd_);
    }
    // The file has a ring's length.
    void expect_refused(int fd) {
        fd_ = fd;
        ASSERT_GE(fd_, 0) << std::strerror(errno);
        ShmOpenBody body = made_.body();
        body.descriptor = static_cast<std::uint32_t>(fd_);
        EXPECT_EQ(error_of(body), EPROTO);
    }
    ShmSegment made_;
    int fd_ = -1;
};

TEST_F(ForeignFiles, ThatCanShrinkAreNotOpened) {
    const int fd = memfd_create("test", MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kSmallRing.bytes())), 0);
    expect_refused(fd);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    ShmOpenBody body = made_.body();
    body.descriptor = static_cast<std::uint32_t>(fd);
    EXPECT_EQ(error_of(body), EPROTO);
}

TEST_F(ForeignFiles, WithANameAreNotOpened) {
    std::string path = testing::TempDir() + "shm-segment-XXXXXX";
    const int fd = mkstemp(path.data());
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kSmallRing.bytes())), 0);
    expect_refused(fd);
    unlink(path.c_str());
}

TEST_F(ForeignFiles, ThatAreNoMemoryAreNotOpened) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    close(ends[1]);
    expect_refused(ends[0]);
}

// A process would be ended by SIGXFSZ.
TEST(ShmSegments, AreNotMadeBeyondTheLimitOfFiles) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{4096, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(ShmSegment{kSmallRing}, std::system_error);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NO_THROW(ShmSegment{kSmallRing});
}

TEST(Hosts, HaveANumber) {
    EXPECT_NE(host_number(), 0u);
    EXPECT_LE(host_number(), kMostHostNumber);
}

// The memory of this process stands for a peer's: the kernel always allows it.
class ProcessMemoryTest : public ::testing::Test {
protected:
    ProcessMemory memory(std::uint64_t word = ProcessMemory::own_word()) {
        return {static_cast<std::uint32_t>(getpid()), ProcessMemory::own_word_address(), word,
                ring_.control()};
    }
    static Segment segment(const void* at, std::size_t bytes) {
        return {reinterpret_cast<std::uintptr_t>(at), bytes, 0, 0};
    }
    RingMemory ring_{kSmallRing};
};

TEST_F(ProcessMemoryTest, ReadsFromOneShapeIntoAnother) {
    ProcessMemory peer = memory();
    ASSERT_EQ(peer.probe(), 0);
    const std::string from = "abcdefghijklmnopqrstuvwxyz";
    const Segment segments[] = {segment(&from[0], 5), segment(&from[5], 0), segment(&from[5], 21)};
    std::string to(26, '.');
    const iovec buffers[] = {{&to[0], 11}, {&to[11], 15}};
    ProcessMemory::Result result = peer.read(buffers, segments, 3, 20);
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.bytes, 20u);
    EXPECT_EQ(to, "...defghijklmnopqrstuvw...");
    result = peer.read(buffers, segments, 0, 26);
    EXPECT_EQ(result.bytes, 26u);
    EXPECT_EQ(to, from);
}

TEST_F(ProcessMemoryTest, InvalidAddressesEndTheRead) {
    ProcessMemory peer = memory();
    std::string from(64, 'x'), to(128, '.');
    const iovec buffer{to.data(), to.size()};
    const Segment none[] = {segment(nullptr, 64)};
    EXPECT_EQ(peer.read({&buffer, 1}, none, 0, 64).error, EFAULT);
    const Segment half[] = {segment(from.data(), 64), segment(nullptr, 64)};
    const ProcessMemory::Result result = peer.read({&buffer, 1}, half, 0, 128);
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.bytes, 64u);
    EXPECT_EQ(peer.read({&buffer, 1}, half, 64, 64).error, EFAULT);
}

TEST_F(ProcessMemoryTest, AnotherProcessIsNotBelieved) {
    char to = '.';
    const char from = 'x';
    const iovec buffer{&to, 1};
    const Segment segments[] = {segment(&from, 1)};
    EXPECT_EQ(memory(1).probe(), ESRCH);
    EXPECT_EQ(memory(1).read({&buffer, 1}, segments, 0, 1).error, ESRCH);
    ProcessMemory nowhere(static_cast<std::uint32_t>(getpid()), 0, 0, ring_.control());
    EXPECT_EQ(nowhere.probe(), ESRCH) << "its word is not there";
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ProcessMemory gone(static_cast<std::uint32_t>(child), ProcessMemory::own_word_address(),
                       ProcessMemory::own_word(), ring_.control());
    EXPECT_EQ(gone.probe(), ESRCH);
}

// Another process with that number has another word, which short reads leave out for 10 ms.
TEST_F(ProcessMemoryTest, AnotherWordIsFoundSoon) {
    std::uint64_t word = 5;
    ProcessMemory peer(static_cast<std::uint32_t>(getpid()),
                       reinterpret_cast<std::uintptr_t>(&word), word, ring_.control());
    std::string from(1 << 20, 'x'), to(1 << 20, '.');
    const iovec buffer{to.data(), to.size()};
    const Segment segments[] = {segment(from.data(), from.size())};
    EXPECT_EQ(peer.read({&buffer, 1}, segments, 0, 100).bytes, 100u);
    EXPECT_EQ(peer.read({&buffer, 1}, segments, 100, 100).bytes, 100u);
    word = 6;
    EXPECT_EQ(peer.read({&buffer, 1}, segments, 0, 1 << 20).error, ESRCH) << "a long one";
    usleep(11'000);
    EXPECT_EQ(peer.read({&buffer, 1}, segments, 0, 100).error, ESRCH) << "a short one, later";
}

TEST_F(ProcessMemoryTest, MemoryThatIsGivenUpIsNotBelieved) {
    ProcessMemory peer = memory();
    EXPECT_EQ(peer.probe(), 0);
    ShmSender(ring_.at(), kSmallRing, false).close();
    EXPECT_EQ(peer.probe(), ESRCH);
}

// Where the kernel forbids it, nothing is tested: the endpoint then reads by the device.
TEST_F(ProcessMemoryTest, ReadsAChildsMemory) {
    static char text[] = "parent";
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        std::strcpy(text, "child!");
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    ProcessMemory peer(static_cast<std::uint32_t>(child), ProcessMemory::own_word_address(),
                       ProcessMemory::own_word(), ring_.control());
    if (peer.probe() == 0) {
        char to[sizeof text] = {};
        const iovec buffer{to, sizeof to};
        const Segment segments[] = {segment(text, sizeof text)};
        EXPECT_EQ(peer.read({&buffer, 1}, segments, 0, sizeof to).bytes, sizeof to);
        EXPECT_STREQ(to, "child!");
    }
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(peer.probe(), ESRCH);
}

}  // namespace
}  // namespace heddle::protocol::test
