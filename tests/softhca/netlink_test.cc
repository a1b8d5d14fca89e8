// SPDX-License-Identifier: BSD-2-Clause
// The RDMA netlink (rdma/rdma_netlink.h) as a program sees it: the socket, requests and answers.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "netlink_socket.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

TEST_F(Netlink, DevicesAreDumped) {
    std::vector<Reply> replies;
    EXPECT_EQ(dump(Request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP), &replies), 0);
    ASSERT_EQ(replies.size(), 1u);
    const AttributeMap device = attributes_of(replies[0].payload);
    EXPECT_EQ(text(device, RDMA_NLDEV_ATTR_DEV_NAME), "mlx5_0");
    EXPECT_EQ(number<std::uint32_t>(device, RDMA_NLDEV_ATTR_PORT_INDEX), 1u);

    const Owned<ibv_context> context = open_device();
    const ibv_device_attr attributes = device_attributes(context.get());
    EXPECT_EQ(text(device, RDMA_NLDEV_ATTR_FW_VERSION), attributes.fw_ver);
    EXPECT_EQ(number<std::uint64_t>(device, RDMA_NLDEV_ATTR_NODE_GUID),
              be64toh(attributes.node_guid));
    EXPECT_EQ(number<std::uint64_t>(device, RDMA_NLDEV_ATTR_CAP_FLAGS),
              attributes.device_cap_flags);
}

TEST_F(Netlink, OneDeviceIsFoundByItsIndexOnly) {
    const AttributeMap device = attributes_of(ask(Request(RDMA_NLDEV_CMD_GET).device()).payload);
    EXPECT_EQ(text(device, RDMA_NLDEV_ATTR_DEV_NAME), "mlx5_0");
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET).device(1)), EINVAL);
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET)), EINVAL);
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET).text(RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0")),
              EINVAL);
}

TEST_F(Netlink, PortIsThatOfTheVerbs) {
    std::vector<Reply> replies;
    EXPECT_EQ(dump(Request(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP).device(), &replies), 0);
    ASSERT_EQ(replies.size(), 1u);
    const Reply one =
        ask(Request(RDMA_NLDEV_CMD_PORT_GET).device().u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1));
    EXPECT_EQ(one.payload, replies[0].payload);
    const AttributeMap port = attributes_of(one.payload);
    const Owned<ibv_context> context = open_device();
    const ibv_port_attr attributes = port_attributes(context.get());
    EXPECT_EQ(number<std::uint32_t>(port, RDMA_NLDEV_ATTR_LID), attributes.lid);
    EXPECT_EQ(number<std::uint8_t>(port, RDMA_NLDEV_ATTR_PORT_STATE), attributes.state);
    EXPECT_EQ(number<std::uint64_t>(port, RDMA_NLDEV_ATTR_CAP_FLAGS), attributes.port_cap_flags);
    for (const std::uint32_t wrong : {0u, 2u, ~0u})
        EXPECT_EQ(
            error_of(
                Request(RDMA_NLDEV_CMD_PORT_GET).device().u32(RDMA_NLDEV_ATTR_PORT_INDEX, wrong)),
            EINVAL);
    replies.clear();
    EXPECT_EQ(dump(Request(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP), &replies), EINVAL);
    EXPECT_TRUE(replies.empty());
}

TEST_F(Netlink, CharacterDeviceIsThatOfDev) {
    const auto request = [](const char* type) {
        return Request(RDMA_NLDEV_CMD_GET_CHARDEV)
            .device()
            .text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, type);
    };
    const AttributeMap answer = attributes_of(ask(request("uverbs")).payload);
    struct stat status {};
    const std::string path = "/dev/infiniband/" + text(answer, RDMA_NLDEV_ATTR_CHARDEV_NAME);
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    const auto encoded = number<std::uint64_t>(answer, RDMA_NLDEV_ATTR_CHARDEV);
    EXPECT_EQ((encoded & 0xfff00) >> 8, major(status.st_rdev));
    EXPECT_EQ((encoded & 0xff) | (encoded >> 12 & 0xfff00), minor(status.st_rdev));
    EXPECT_EQ(error_of(request("umad")), ENOENT);
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET_CHARDEV).device()), EINVAL);
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET_CHARDEV, NLM_F_DUMP).device()), EINVAL);
}

TEST_F(Netlink, UnknownCommandsAreNotSupported) {
    for (const int command : {int{RDMA_NLDEV_CMD_SET}, int{RDMA_NLDEV_CMD_NEWLINK}, 8, 500})
        for (const int flags : {0, NLM_F_DUMP})
            EXPECT_EQ(error_of(Request(command, flags).device()), EOPNOTSUPP) << command;
    EXPECT_EQ(error_of(Request(0, 0, RDMA_NL_LS)), EINVAL);
}

TEST_F(Netlink, AcknowledgementsAreAsAsked) {
    const Request good = Request(RDMA_NLDEV_CMD_GET, NLM_F_ACK).device();
    EXPECT_EQ(ask(good).header.nlmsg_type, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET));
    const std::vector<Reply> ack = receive();
    ASSERT_EQ(ack.size(), 1u);
    EXPECT_EQ(ack[0].header.nlmsg_type, NLMSG_ERROR);
    EXPECT_EQ(ack[0].error(), 0);
    EXPECT_EQ(ack[0].payload.size(), sizeof(nlmsgerr));

    const Request bad = Request(RDMA_NLDEV_CMD_GET).device(7);
    const Reply whole = ask(bad);
    ASSERT_EQ(whole.payload.size(), sizeof(int) + bad.bytes().size());
    EXPECT_EQ(
        std::memcmp(whole.payload.data() + sizeof(int), bad.bytes().data(), bad.bytes().size()), 0);
    const int on = 1;
    for (const int option : {NETLINK_CAP_ACK, NETLINK_EXT_ACK})
        EXPECT_EQ(::setsockopt(fd_, SOL_NETLINK, option, &on, sizeof on), 0);
    EXPECT_EQ(ask(bad).payload.size(), sizeof(nlmsgerr));
}

// As the kernel's nldev_policy has it.
TEST_F(Netlink, MalformedRequestsAreRefused) {
    const char unterminated[] = {'u', 'v'};
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET).raw(RDMA_NLDEV_ATTR_DEV_INDEX, "\0\0", 2)),
              EINVAL);
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET_CHARDEV)
                           .device()
                           .raw(RDMA_NLDEV_ATTR_CHARDEV_TYPE, unterminated, sizeof unterminated)),
              EINVAL);
    // An attribute whose length goes beyond the message is not read.
    Bytes request = Request(RDMA_NLDEV_CMD_GET).device().bytes();
    request[sizeof(nlmsghdr)] = 64;
    send(request);
    EXPECT_EQ(receive().at(0).error(), EINVAL);
    // Lengths that cannot be: nothing is answered, nothing crashes.
    for (const std::uint32_t length : {0u, 15u, 1000u, ~0u}) {
        std::memcpy(request.data(), &length, sizeof length);
        send(request);
    }
    send(Bytes(3));
    EXPECT_FALSE(readable());
}

TEST_F(Netlink, SeveralRequestsInOneDatagram) {
    Bytes both = Request(RDMA_NLDEV_CMD_GET).device().bytes();
    const Bytes second = Request(RDMA_NLDEV_CMD_GET).device(9).bytes();
    both.insert(both.end(), second.begin(), second.end());
    send(both);
    EXPECT_NE(receive().at(0).header.nlmsg_type, NLMSG_ERROR);
    EXPECT_EQ(receive().at(0).error(), EINVAL);
}

TEST_F(Netlink, TheSocketWaitsPeeksAndDoesNotBlock) {
    EXPECT_FALSE(readable());
    char byte;
    EXPECT_EQ(::recv(fd_, &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(::fcntl(fd_, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(::recv(fd_, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EAGAIN);

    send(Request(RDMA_NLDEV_CMD_GET).device().bytes());
    EXPECT_TRUE(readable());
    const ssize_t whole = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_TRUNC);
    EXPECT_GT(whole, 64);
    Bytes buffer(4096);
    EXPECT_EQ(::recvfrom(fd_, buffer.data(), buffer.size(), 0, nullptr, nullptr), whole);
    EXPECT_FALSE(readable());
}

TEST_F(Netlink, TheProgramChoosesTheAddress) {
    sockaddr_nl mine{};
    mine.nl_family = AF_NETLINK;
    mine.nl_pid = static_cast<std::uint32_t>(::getpid()) | 0x40000000;
    const int size = 16384;
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    ASSERT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&mine), sizeof mine), 0);
    EXPECT_EQ(own_address().nl_pid, mine.nl_pid);
    EXPECT_EQ(ask(Request(RDMA_NLDEV_CMD_GET).device()).header.nlmsg_pid, mine.nl_pid);
}

TEST_F(Netlink, BadCallsFailAsTheKernelsDo) {
    const Bytes request = Request(RDMA_NLDEV_CMD_GET).device().bytes();
    sockaddr_nl other{};
    other.nl_family = AF_NETLINK;
    other.nl_pid = 1;
    const auto send_to = [&](const void* bytes, std::size_t size, socklen_t length) {
        errno = 0;
        EXPECT_EQ(::sendto(fd_, bytes, size, 0, reinterpret_cast<const sockaddr*>(&other), length),
                  -1);
        return errno;
    };
    EXPECT_EQ(send_to(request.data(), request.size(), sizeof other), EPERM);
    EXPECT_EQ(send_to(request.data(), request.size(), 4), EINVAL);
    other.nl_pid = 0;
    EXPECT_EQ(send_to(reinterpret_cast<const void*>(8), 64, sizeof other), EFAULT);
    EXPECT_EQ(send_to(request.data(), std::size_t{1} << 40, sizeof other), EMSGSIZE);
    other.nl_family = AF_INET;
    EXPECT_EQ(send_to(request.data(), request.size(), sizeof other), EINVAL);
}

// Nobody else can put answers into the program's mouth.
TEST_F(Netlink, OthersCannotAnswer) {
    ask(Request(RDMA_NLDEV_CMD_GET).device());
    sockaddr_nl target = own_address();
    const int stranger = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
    ASSERT_GE(stranger, 0);
    EXPECT_EQ(::sendto(stranger, "forged", 6, 0, reinterpret_cast<const sockaddr*>(&target),
                       sizeof target),
              -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    ::close(stranger);
    EXPECT_FALSE(readable());
}

TEST_F(Netlink, DuplicatesAndForkedChildrenAsk) {
    const int duplicate = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    ASSERT_GE(duplicate, 0);
    ::close(fd_);
    fd_ = duplicate;
    EXPECT_EQ(error_of(Request(RDMA_NLDEV_CMD_GET)), EINVAL);
    const pid_t child = ::fork();
    if (child == 0) {
        const bool right =
            error_of(Request(RDMA_NLDEV_CMD_GET)) == EINVAL &&
            ask(Request(RDMA_NLDEV_CMD_GET).device()).header.nlmsg_type != NLMSG_ERROR;
        ::_exit(right && !HasFailure() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_NE(ask(Request(RDMA_NLDEV_CMD_GET).device()).header.nlmsg_type, NLMSG_ERROR);
}

// What was an RDMA socket is any socket once its number is used again.
TEST_F(Netlink, ANumberUsedAgainIsAnotherSocket) {
    ask(Request(RDMA_NLDEV_CMD_GET).device());
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    ASSERT_EQ(::dup3(pair[0], fd_, O_CLOEXEC), fd_);
    const int another = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    ASSERT_GE(another, 0);
    EXPECT_EQ(::send(fd_, "plain", 5, 0), 5);
    char buffer[8];
    EXPECT_EQ(::recv(pair[1], buffer, sizeof buffer, 0), 5);
    ::close(another);
    ::close(pair[0]);
    ::close(pair[1]);
}

}  // namespace
}  // namespace softhca::test
