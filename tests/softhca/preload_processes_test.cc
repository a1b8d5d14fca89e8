// SPDX-License-Identifier: BSD-2-Clause
// Descriptors and processes: closing everything, dup; fork, vfork, signal handlers, threads.
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload_doors.h"

namespace softhca::test {
namespace {

// The descriptor whose lock says that this process lives, of all descriptors the one to lose last.
int fabric_descriptor() {
    for (int fd = 3; fd < 4096; ++fd) {
        char link[64], target[PATH_MAX] = "";
        std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t length = ::readlink(link, target, sizeof target - 1);
        if (length > 0 && std::string(target).ends_with(".fabric")) {
            return fd;
        }
    }
    return -1;
}

TEST(PreloadDescriptors, TheFabricsOwnStayOpen) {
    ASSERT_EQ(::access(kDevice, F_OK), 0);
    const int fd = fabric_descriptor();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::close(fd), 0);
    EXPECT_EQ(::close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0), 0);
    EXPECT_EQ(::close_range(static_cast<unsigned>(fd), ~0U, 0), 0);
    ::closefrom(fd);
    EXPECT_EQ(::dup2(0, fd), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(::dup3(0, fd, O_CLOEXEC), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(fabric_descriptor(), fd);
}

// Only the RDMA netlink is softhca's. Other families of netlink stay the kernel's, which answers.
TEST(PreloadDescriptors, OtherNetlinksAreTheKernels) {
    const int rdma = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    ASSERT_GE(rdma, 0) << "so that softhca has a socket to look for";
    const int route = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    ASSERT_GE(route, 0) << std::strerror(errno);
    int protocol = -1;
    socklen_t length = sizeof protocol;
    EXPECT_EQ(::getsockopt(route, SOL_SOCKET, SO_PROTOCOL, &protocol, &length), 0);
    EXPECT_EQ(protocol, NETLINK_ROUTE);

    struct {
        nlmsghdr header;
        ifinfomsg body;
    } request{};
    request.header = {sizeof request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7, 0};
    ASSERT_EQ(::send(route, &request, sizeof request, 0), ssize_t{sizeof request});
    alignas(nlmsghdr) char answer[32768];
    ASSERT_GE(::recv(route, answer, sizeof answer, 0), ssize_t{sizeof(nlmsghdr)});
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
    EXPECT_EQ(header->nlmsg_type, RTM_NEWLINK) << "the kernel lists the network interfaces";
    EXPECT_EQ(header->nlmsg_seq, 7u);
    ::close(route);
    ::close(rdma);
}

// Tests with a child that ends by _exit() join first, so that the fabric is the parent's.
void join() { ASSERT_EQ(drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)), kBoard); }

TEST(PreloadDescriptors, ClosingAllKeepsTheDevice) {
    join();
    const pid_t child = ::fork();
    if (child == 0) {
        if (::open(kDevice, O_RDWR) < 0) ::_exit(1);
        if (::close_range(3, ~0U, 0) != 0) ::_exit(2);
        int fd = ::open(kDevice, O_RDWR);
        struct stat status {};
        if (fd < 0 || ::fstat(fd, &status) != 0 || !is_device(status)) ::_exit(3);
        ::closefrom(3);
        if (::fstat(fd, &status) == 0) ::_exit(4);
        for (int i = 3; i < 4096; ++i)
            ::close(i);
        if (drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)) != kBoard) ::_exit(5);
        fd = ::open(kDevice, O_RDWR);
        if (fd < 0 || ::fstat(fd, &status) != 0 || !is_device(status)) ::_exit(6);
        // A kernel that knows a flag less, a range the wrong way round: as ever.
        if (::close_range(9, 3, 0) != -1 || errno != EINVAL) ::_exit(7);
        if (::close_range(3, 9, 1 << 30) != -1 || errno != EINVAL) ::_exit(8);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// close_range() looks for special descriptors 1024 at a time. The fabric's own are behind these
// here, and stay open.
TEST(PreloadDescriptors, ThousandsOfSpecialOnesAreClosed) {
    join();
    constexpr int kCount = 2500;
    const pid_t child = ::fork();
    if (child == 0) {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        limit.rlim_cur = limit.rlim_max;
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        const int rdma = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
        if (rdma < 0) ::_exit(2);
        std::vector<int> duplicates;
        for (int i = 0; i < kCount; ++i)
            duplicates.push_back(::dup(rdma));
        if (duplicates.back() < kCount) ::_exit(3);
        if (drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)) != kBoard) ::_exit(4);
        const int fabric = fabric_descriptor();
        if (fabric < duplicates.back()) ::_exit(5);
        if (::close_range(3, ~0U, 0) != 0) ::_exit(6);
        for (const int fd : duplicates)
            if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) ::_exit(7);
        if (::fcntl(rdma, F_GETFD) != -1) ::_exit(8);
        if (fabric_descriptor() != fabric) ::_exit(9);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PreloadProcesses, AVforkChildLeavesTheParentAlone) {
    const int fd = ::open(kDevice, O_RDWR);
    ASSERT_GE(fd, 0);
    const pid_t child = ::vfork();
    if (child == 0) {
        ::close(fd);
        ::close_range(3, ~0U, 0);
        ::execl("/bin/sh", "sh", "-c",
                "read board < /sys/class/infiniband/mlx5_0/board_id && "
                "test \"$board\" = SFT0000000001 && test -c /dev/infiniband/uverbs0",
                static_cast<char*>(nullptr));
        ::_exit(127);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    struct stat description {};
    EXPECT_EQ(::fstat(fd, &description), 0);
    EXPECT_TRUE(is_device(description)) << "the child's close was taken for the parent's";
    ::close(fd);
}

// The file of this test's fabric; empty when nobody has named one.
std::string fabric_file() {
    const char* name = std::getenv("SOFTHCA_FABRIC");
    if (name == nullptr) return {};
    return "/dev/shm/softhca-" + std::to_string(::geteuid()) + "/" + name + ".fabric";
}

// No join() here: the child is alone in the fabric, and its files must not outlive it.
TEST(PreloadProcesses, TheLastToEndTakesTheFabricAway) {
    const std::string file = fabric_file();
    ASSERT_FALSE(file.empty()) << "run by ctest";
    void (*const ends[])(int) = {::exit, ::_exit, ::_Exit, ::quick_exit};
    for (const auto end : ends) {
        const pid_t child = ::fork();
        if (child == 0) {
            const bool joined = ::open(kDevice, O_RDWR) >= 0 && ::access(file.c_str(), F_OK) == 0;
            end(joined ? 7 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(WEXITSTATUS(status), 7);
        EXPECT_NE(::access(file.c_str(), F_OK), 0) << "left behind";
        EXPECT_NE(::access((file.substr(0, file.size() - 6) + "tree").c_str(), F_OK), 0);
    }
}

// The same for many that end at the same moment: one of them is the last.
TEST(PreloadProcesses, SomeOfManyThatEndTogetherTakeTheFabricAway) {
    const std::string file = fabric_file();
    ASSERT_FALSE(file.empty()) << "run by ctest";
    constexpr int kChildren = 8;
    for (int round = 0; round < 10; ++round) {
        int start[2], ready[2];
        ASSERT_EQ(::pipe(start), 0);
        ASSERT_EQ(::pipe(ready), 0);
        for (int i = 0; i < kChildren; ++i) {
            if (::fork() != 0) continue;
            ::close(start[1]);
            char byte = ::open(kDevice, O_RDWR) >= 0 ? 'y' : 'n';
            if (::write(ready[1], &byte, 1) != 1 || ::read(start[0], &byte, 1) != 0) ::_exit(1);
            if (i % 2 == 0) ::exit(0);
            ::_exit(0);
        }
        for (int i = 0; i < kChildren; ++i) {
            char byte = 0;
            ASSERT_EQ(::read(ready[0], &byte, 1), 1);
            EXPECT_EQ(byte, 'y');
        }
        EXPECT_EQ(::access(file.c_str(), F_OK), 0);
        for (const int fd : {start[0], start[1], ready[0], ready[1]})
            ::close(fd);
        for (int i = 0; i < kChildren; ++i) {
            int status = 0;
            ASSERT_GT(::wait(&status), 0);
            EXPECT_EQ(status, 0);
        }
        EXPECT_NE(::access(file.c_str(), F_OK), 0) << "left behind in round " << round;
    }
}

TEST(PreloadProcesses, AForkedChildHasTheDevice) {
    join();
    const pid_t child = ::fork();
    if (child == 0) {
        struct stat status {};
        const int fd = ::open(kDevice, O_RDWR);
        const bool good = fd >= 0 && ::fstat(fd, &status) == 0 && is_device(status) &&
                          drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)) == kBoard;
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

volatile std::sig_atomic_t in_handler_good = 0;

void look_from_handler(int) {
    const int saved_errno = errno;
    struct stat status {};
    const int fd = ::open("/sys/class/infiniband/mlx5_0/board_id", O_RDONLY);
    char text[64];
    const bool good = ::stat(kDevice, &status) == 0 && is_device(status) && fd >= 0 &&
                      ::read(fd, text, sizeof text) == static_cast<ssize_t>(std::strlen(kBoard)) &&
                      ::access("/dev/null", R_OK) == 0;
    ::close(fd);
    in_handler_good = in_handler_good + (good ? 1 : 0);
    errno = saved_errno;
}

TEST(PreloadProcesses, FromASignalHandler) {
    ASSERT_EQ(drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)), kBoard);
    struct sigaction action {
    }, old{};
    action.sa_handler = look_from_handler;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
    for (int i = 0; i < 100; ++i) {
        ::raise(SIGUSR1);
    }
    ::sigaction(SIGUSR1, &old, nullptr);
    EXPECT_EQ(in_handler_good, 100);
}

TEST(PreloadProcesses, ThreadsMeetInTheirFirstCall) {
    join();
    const pid_t child = ::fork();  // which has to join anew
    if (child == 0) {
        std::vector<std::thread> threads;
        std::atomic<int> good{0};
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&good, i] {
                for (int round = 0; round < 50; ++round) {
                    struct stat status {};
                    const bool fine =
                        i % 2 == 0
                            ? drain(::open(at(kClass, "board_id").c_str(), O_RDONLY)) == kBoard
                            : ::stat(kDevice, &status) == 0 && is_device(status);
                    good += fine ? 1 : 0;
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        ::_exit(good == 400 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace softhca::test
