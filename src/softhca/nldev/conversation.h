// SPDX-License-Identifier: BSD-2-Clause
// The protocol on one socket of the RDMA netlink: requests in, datagrams out. It knows nothing of
// sockets and trusts nothing that it gets.
//
// A request is answered as in the kernel (netlink.c: rdma_nl_rcv_skb; af_netlink.c: netlink_dump):
// by one message or by an NLMSG_ERROR. A dump is answered by as many datagrams as it needs, the
// last of which is an NLMSG_DONE. They are created one by one as the program reads them.
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

// The properties of the receiving socket that answers depend on.
struct Recipient {
    std::uint32_t port = 0;    // its netlink address
    bool capped_acks = false;  // NETLINK_CAP_ACK: an error does not repeat the request
};

class Conversation {
public:
    // Answers the requests of one datagram. `segment` is the fabric's; nullptr means that there is
    // no device. Returns false if too many answers are unread or memory is exhausted.
    bool request(std::span<const std::byte> datagram, const Recipient& recipient,
                 const device::Segment* segment) noexcept;

    // Takes the next datagram for the program. Returns false if there is none.
    bool next(const device::Segment* segment, std::vector<std::byte>* out) noexcept;

    // Puts a datagram that could not be delivered back to the front.
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
        int error;                    // the errno of the NLMSG_DONE
        std::uint32_t device;         // only objects of this device
        std::uint32_t next;           // index of the next object
        std::uint32_t physical_port;  // only objects on this port; 0: all
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
