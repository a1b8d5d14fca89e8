// SPDX-License-Identifier: BSD-2-Clause
// A socket of the RDMA netlink (rdma/rdma_netlink.h), requests for it, and its answers in parts.
#pragma once

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

namespace softhca::test {

inline constexpr std::uint16_t kSrqGet = 23, kSrqNumber = 90,
                               kCopyOnFork = 93;  // newer than some headers

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

inline AttributeMap attributes_of(const Bytes& payload) {
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

inline std::string text(const AttributeMap& attributes, std::uint16_t type) {
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

}  // namespace softhca::test
