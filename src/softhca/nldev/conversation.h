// SPDX-License-Identifier: BSD-2-Clause
// One socket's conversation with the RDMA netlink: requests in, datagrams out. It knows nothing of
// sockets, and believes nothing of what it is given.
//
// As in the kernel (netlink.c: rdma_nl_rcv_skb; af_netlink.c: netlink_dump) a request is answered
// by one message, or by an NLMSG_ERROR; a dump by as many datagrams as it takes, of which the last
// is an NLMSG_DONE, made one by one as the program reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "softhca/device/segment.h"
#include "softhca/nldev/message.h"

namespace softhca::nldev {

// What the answers depend on of the socket.
struct Recipient {
    std::uint32_t port = 0;    // its address
    bool capped_acks = false;  // NETLINK_CAP_ACK: errors do not repeat the request
};

class Conversation {
public:
    // Answers the requests of one datagram. `segment` is the fabric's, or nullptr: there is no
    // device. False: too many answers have not been read, or there is no memory for another.
    bool request(std::span<const std::byte> datagram, const Recipient& recipient,
                 const device::Segment* segment) noexcept;

    // Takes the next datagram that the program is to receive; false if there is none.
    bool next(const device::Segment* segment, std::vector<std::byte>* out) noexcept;

    // Puts one that could not be delivered back at the front.
    void give_back(std::vector<std::byte> datagram) noexcept;

private:
    static constexpr std::size_t kMostUnread = 1024;

    struct Request {
        nlmsghdr header;
        std::span<const std::byte> whole;  // with the header
        Attributes attributes;
    };
    struct Dump {
        std::uint16_t command;
        std::uint32_t sequence, port;
        int error;                    // what the NLMSG_DONE says
        std::uint32_t next;           // index of the object to go on with
        std::uint32_t physical_port;  // only what is on this port; 0: all
    };

    int answer(const Request& request, const Recipient& recipient, const device::Segment* segment);
    int answer_at_once(const Request& request, const Recipient& recipient,
                       const device::Segment* segment);
    int start_dump(const Request& request, const Recipient& recipient,
                   const device::Segment* segment);
    void acknowledge(const Request& request, const Recipient& recipient, int error);
    bool continue_dump(Dump* dump, const device::Segment* segment, Datagram* out) noexcept;

    std::deque<std::vector<std::byte>> unread_;
    std::optional<Dump> dump_;
};

}  // namespace softhca::nldev
