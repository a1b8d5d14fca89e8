// SPDX-License-Identifier: BSD-2-Clause
// The RDMA netlink (rdma/rdma_netlink.h) as a program sees it: the socket, requests and answers,
// dumps longer than a datagram, and what libibverbs makes of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "verbs_fixture.h"

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

namespace softhca::test {
namespace {

constexpr std::uint16_t kSrqGet = 23, kSrqNumber = 90, kCopyOnFork = 93;  // newer than some headers

using Bytes = std::vector<char>;
using AttributeMap = std::multimap<std::uint16_t, Bytes>;

struct Reply {
    nlmsghdr header;
    Bytes payload;
    int error() const {  // of NLMSG_ERROR and NLMSG_DONE
        int value = 0;
        std::memcpy(&value, payload.data(), std::min(payload.size(), sizeof value));
        return -value;
    }
};

AttributeMap attributes_of(const Bytes& payload) {
    AttributeMap found;
    for (std::size_t at = 0; at + sizeof(nlattr) <= payload.size();) {
        nlattr header;
        std::memcpy(&header, payload.data() + at, sizeof header);
        if (header.nla_len < sizeof header || header.nla_len > payload.size() - at) {
            ADD_FAILURE() << "attribute of " << header.nla_len << " bytes at " << at;
            break;
        }
        const char* value = payload.data() + at + sizeof header;
        found.emplace(header.nla_type & NLA_TYPE_MASK,
                      Bytes(value, value + header.nla_len - sizeof header));
        at += NLA_ALIGN(header.nla_len);
    }
    return found;
}

template <class T>
T number(const AttributeMap& attributes, std::uint16_t type) {
    T value{};
    const auto found = attributes.find(type);
    if (found == attributes.end() || found->second.size() != sizeof value)
        ADD_FAILURE() << "attribute " << type << " is missing or of another size";
    else
        std::memcpy(&value, found->second.data(), sizeof value);
    return value;
}

std::string text(const AttributeMap& attributes, std::uint16_t type) {
    const auto found = attributes.find(type);
    return found == attributes.end() ? "(none)" : std::string(found->second.data());
}

// A request: the command, flags beside NLM_F_REQUEST, and attributes.
class Request {
public:
    explicit Request(int command, int flags = 0, int client = RDMA_NL_NLDEV) {
        header_.nlmsg_type = static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(client, command));
        header_.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
        header_.nlmsg_seq = ++sequence_;
    }
    Request& raw(std::uint16_t type, const void* value, std::size_t length) {
        const nlattr header{static_cast<std::uint16_t>(sizeof header + length), type};
        const char* bytes = reinterpret_cast<const char*>(&header);
        payload_.insert(payload_.end(), bytes, bytes + sizeof header);
        bytes = static_cast<const char*>(value);
        payload_.insert(payload_.end(), bytes, bytes + length);
        payload_.resize(NLA_ALIGN(payload_.size()));
        return *this;
    }
    Request& u32(std::uint16_t type, std::uint32_t value) { return raw(type, &value, 4); }
    Request& text(std::uint16_t type, const char* value) {
        return raw(type, value, std::strlen(value) + 1);
    }
    Request& device(std::uint32_t index = 0) { return u32(RDMA_NLDEV_ATTR_DEV_INDEX, index); }
    std::uint32_t sequence() const { return header_.nlmsg_seq; }
    Bytes bytes() const {
        nlmsghdr header = header_;
        header.nlmsg_len = static_cast<std::uint32_t>(sizeof header + payload_.size());
        Bytes all(sizeof header + payload_.size());
        std::memcpy(all.data(), &header, sizeof header);
        if (!payload_.empty())
            std::memcpy(all.data() + sizeof header, payload_.data(), payload_.size());
        return all;
    }

private:
    static inline std::uint32_t sequence_ = 100;
    nlmsghdr header_{};
    Bytes payload_;
};

class Netlink : public testing::Test {
protected:
    void SetUp() override {
        fd_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
        ASSERT_GE(fd_, 0) << std::strerror(errno);
    }
    void TearDown() override { ::close(fd_); }

    sockaddr_nl own_address() {
        sockaddr_nl own{};
        socklen_t length = sizeof own;
        EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &length), 0);
        EXPECT_EQ(length, sizeof own);
        return own;
    }
    void send(const Bytes& bytes) {
        sockaddr_nl kernel{};
        kernel.nl_family = AF_NETLINK;
        ASSERT_EQ(::sendto(fd_, bytes.data(), bytes.size(), 0,
                           reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel),
                  static_cast<ssize_t>(bytes.size()))
            << std::strerror(errno);
    }
    // The messages of the next datagram.
    std::vector<Reply> receive() {
        Bytes buffer(4096);  // as libmnl's
        sockaddr_nl from{};
        iovec sge{buffer.data(), buffer.size()};
        msghdr message{};
        message.msg_name = &from;
        message.msg_namelen = sizeof from;
        message.msg_iov = &sge;
        message.msg_iovlen = 1;
        const ssize_t size = ::recvmsg(fd_, &message, 0);
        EXPECT_GE(size, 0) << std::strerror(errno);
        EXPECT_EQ(message.msg_flags & MSG_TRUNC, 0);
        EXPECT_EQ(message.msg_namelen, sizeof from);
        EXPECT_EQ(from.nl_pid, 0u) << "the kernel's address";
        std::vector<Reply> replies;
        for (std::size_t at = 0; size > 0 && at + sizeof(nlmsghdr) <= std::size_t(size);) {
            Reply reply;
            std::memcpy(&reply.header, buffer.data() + at, sizeof reply.header);
            const std::size_t length = reply.header.nlmsg_len;
            if (length < sizeof(nlmsghdr) || length > std::size_t(size) - at) {
                ADD_FAILURE() << "message of " << length << " bytes";
                break;
            }
            reply.payload.assign(buffer.data() + at + sizeof(nlmsghdr),
                                 buffer.data() + at + length);
            at += NLMSG_ALIGN(length);
            replies.push_back(std::move(reply));
        }
        return replies;
    }
    // Sends a request whose answer is one message.
    Reply ask(const Request& request) {
        send(request.bytes());
        const std::vector<Reply> replies = receive();
        EXPECT_EQ(replies.size(), 1u);
        if (replies.empty()) return {};
        EXPECT_EQ(replies[0].header.nlmsg_seq, request.sequence());
        EXPECT_EQ(replies[0].header.nlmsg_pid, own_address().nl_pid);
        return replies[0];
    }
    int error_of(const Request& request) {
        const Reply reply = ask(request);
        EXPECT_EQ(reply.header.nlmsg_type, NLMSG_ERROR);
        return reply.error();
    }
    // All messages of a dump, without the NLMSG_DONE, whose error it returns.
    int dump(const Request& request, std::vector<Reply>* out) {
        send(request.bytes());
        for (;;) {
            for (Reply& reply : receive()) {
                EXPECT_EQ(reply.header.nlmsg_seq, request.sequence());
                EXPECT_TRUE(reply.header.nlmsg_flags & NLM_F_MULTI);
                if (reply.header.nlmsg_type == NLMSG_DONE) return reply.error();
                out->push_back(std::move(reply));
            }
            if (testing::Test::HasFailure()) return -1;
        }
    }
    // The entries of a dump of resources.
    std::vector<AttributeMap> list(int command, std::uint16_t table,
                                   const Request* with = nullptr) {
        std::vector<Reply> replies;
        Request request(command, NLM_F_DUMP);
        EXPECT_EQ(dump(with ? *with : request.device(), &replies), 0);
        std::vector<AttributeMap> entries;
        for (const Reply& reply : replies) {
            const AttributeMap attributes = attributes_of(reply.payload);
            EXPECT_EQ(text(attributes, RDMA_NLDEV_ATTR_DEV_NAME), "mlx5_0");
            const auto found = attributes.find(table);
            if (found == attributes.end()) {
                ADD_FAILURE() << "no table " << table;
                continue;
            }
            for (const auto& [type, entry] : attributes_of(found->second)) {
                EXPECT_EQ(type, table + 1);  // RES_QP_ENTRY follows RES_QP, and so on
                entries.push_back(attributes_of(entry));
            }
        }
        return entries;
    }
    bool readable(int timeout_ms = 0) {
        pollfd entry{fd_, POLLIN, 0};
        return ::poll(&entry, 1, timeout_ms) == 1 && entry.revents == POLLIN;
    }

    int fd_ = -1;
};

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

TEST_F(Netlink, QueuePairsAreListedAsTheyAre) {
    Pair pair(Endpoint::Options{});
    std::map<std::uint32_t, AttributeMap> found;
    for (AttributeMap& entry : list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP)) {
        const auto qpn = number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_LQPN);
        found.emplace(qpn, std::move(entry));
    }
    for (const Endpoint* endpoint : {&pair.a, &pair.b}) {
        const ibv_qp* qp = endpoint->qp.get();
        ASSERT_EQ(found.count(qp->qp_num), 1u);
        const AttributeMap& entry = found[qp->qp_num];
        ibv_qp_attr attributes;
        ibv_qp_init_attr initial;
        ASSERT_EQ(ibv_query_qp(endpoint->qp.get(), &attributes, IBV_QP_DEST_QPN, &initial), 0);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_RQPN), attributes.dest_qp_num);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_SQ_PSN), attributes.sq_psn);
        EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_TYPE), IBV_QPT_RC);
        EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_STATE), IBV_QPS_RTS);
        EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_PID),
                  static_cast<std::uint32_t>(::getpid()));
    }
    // One by its number, which kinds of a port are asked for with the port.
    const std::uint32_t qpn = pair.a.qp->qp_num;
    const auto one = [&](std::uint32_t wanted) {
        return Request(RDMA_NLDEV_CMD_RES_QP_GET).device().u32(RDMA_NLDEV_ATTR_RES_LQPN, wanted);
    };
    const Reply reply = ask(one(qpn).u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1));
    EXPECT_EQ(number<std::uint32_t>(attributes_of(reply.payload), RDMA_NLDEV_ATTR_RES_LQPN), qpn);
    EXPECT_EQ(error_of(one(qpn)), EINVAL);
    EXPECT_EQ(error_of(one(1).u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1)), ENOENT);
    const Request on_port =
        Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
    EXPECT_EQ(list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, &on_port).size(), 2u);
}

TEST_F(Netlink, EachKindIsListedAndCounted) {
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "pd"));
    const Owned<ibv_cq> cq = create_cq(context.get(), 100);
    const Owned<ibv_srq> srq = create_srq(pd.get(), 16);
    const Memory memory(pd.get(), 8192);
    struct Kind {
        int command;
        std::uint16_t table;
        const char* name;
    };
    std::map<std::string, std::size_t> counted;
    for (const Kind& kind : {Kind{RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, "pd"},
                             Kind{RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, "cq"},
                             Kind{RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, "mr"},
                             Kind{22, 86, "ctx"}, Kind{kSrqGet, 88, "srq"}}) {
        const std::vector<AttributeMap> entries = list(kind.command, kind.table);
        EXPECT_EQ(entries.size(), 1u) << kind.name;
        for (const AttributeMap& entry : entries)
            EXPECT_EQ(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_PID),
                      static_cast<std::uint32_t>(::getpid()));
        counted[kind.name] = entries.size();
    }
    const AttributeMap mr = list(RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR).at(0);
    EXPECT_EQ(number<std::uint32_t>(mr, RDMA_NLDEV_ATTR_RES_LKEY), memory.mr()->lkey);
    EXPECT_EQ(number<std::uint64_t>(mr, RDMA_NLDEV_ATTR_RES_MRLEN), 8192u);
    const AttributeMap queue = list(RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ).at(0);
    EXPECT_EQ(number<std::uint32_t>(queue, RDMA_NLDEV_ATTR_RES_CQE),
              static_cast<std::uint32_t>(cq->cqe));
    EXPECT_TRUE(list(RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID).empty());

    counted["qp"] = counted["cm_id"] = 0;
    const AttributeMap summary =
        attributes_of(ask(Request(RDMA_NLDEV_CMD_RES_GET).device()).payload);
    std::map<std::string, std::size_t> reported;
    for (const auto& [type, entry] :
         attributes_of(summary.find(RDMA_NLDEV_ATTR_RES_SUMMARY)->second)) {
        const AttributeMap values = attributes_of(entry);
        reported[text(values, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)] =
            number<std::uint64_t>(values, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
    }
    EXPECT_EQ(reported, counted);
}

// A dump goes on as it is read, whatever room the socket has; a second one has to wait for it.
TEST_F(Netlink, LongDumpsComeInManyDatagrams) {
    constexpr int kQps = 300;
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "pd"));
    const Owned<ibv_cq> cq = create_cq(context.get(), 16);
    const Owned<ibv_srq> srq = create_srq(pd.get(), 16);
    std::vector<Owned<ibv_qp>> qps;
    std::set<std::uint32_t> made;
    ibv_qp_init_attr initial = {};
    initial.send_cq = initial.recv_cq = cq.get();
    initial.srq = srq.get();
    initial.cap.max_send_wr = initial.cap.max_send_sge = 1;
    initial.qp_type = IBV_QPT_RC;
    for (int i = 0; i < kQps; ++i) {
        qps.emplace_back(check(ibv_create_qp(pd.get(), &initial), "qp"));
        made.insert(qps.back()->qp_num);
    }
    const int size = 1;  // the kernel makes it the least there is
    ASSERT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
    std::multiset<std::uint32_t> listed;
    for (const AttributeMap& entry : list(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP))
        listed.insert(number<std::uint32_t>(entry, RDMA_NLDEV_ATTR_RES_LQPN));
    EXPECT_TRUE(std::equal(made.begin(), made.end(), listed.begin(), listed.end()));

    // The ranges of the SRQ's QPs are all of them.
    std::set<std::uint32_t> receivers;
    const AttributeMap entry = list(kSrqGet, 88).at(0);
    EXPECT_EQ(number<std::uint8_t>(entry, RDMA_NLDEV_ATTR_RES_TYPE), IBV_SRQT_BASIC);
    EXPECT_NE(number<std::uint32_t>(entry, kSrqNumber), 0u);
    for (const auto& [type, range] : attributes_of(entry.find(RDMA_NLDEV_ATTR_RES_QP)->second)) {
        const AttributeMap values = attributes_of(range);
        const bool single = values.count(RDMA_NLDEV_ATTR_RES_LQPN) != 0;
        const auto first = number<std::uint32_t>(values, single ? RDMA_NLDEV_ATTR_RES_LQPN : 91);
        const auto last = single ? first : number<std::uint32_t>(values, 92);
        for (std::uint32_t qpn = first; qpn <= last; ++qpn)
            receivers.insert(qpn);
    }
    EXPECT_EQ(receivers, made);

    send(Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().bytes());
    send(Request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP).device().bytes());
    bool busy = false;
    for (bool done = false; !done && !HasFailure();)
        for (const Reply& reply : receive()) {
            busy = busy || (reply.header.nlmsg_type == NLMSG_ERROR && reply.error() == EBUSY);
            done = done || reply.header.nlmsg_type == NLMSG_DONE;
        }
    EXPECT_TRUE(busy);
}

TEST_F(Netlink, SubsystemCopiesOnFork) {
    const AttributeMap answer = attributes_of(ask(Request(RDMA_NLDEV_CMD_SYS_GET)).payload);
    EXPECT_EQ(number<std::uint8_t>(answer, RDMA_NLDEV_SYS_ATTR_NETNS_MODE), 1);
    EXPECT_EQ(number<std::uint8_t>(answer, kCopyOnFork), 1);
    EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

// sysfs does not tell libibverbs an index.
TEST_F(Netlink, LibibverbsFindsItsDevicesHere) {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    ASSERT_NE(devices, nullptr);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(ibv_get_device_index(devices[0]), 0);
    EXPECT_STREQ(ibv_get_device_name(devices[0]), "mlx5_0");
    ibv_free_device_list(devices);
}

}  // namespace
}  // namespace softhca::test
