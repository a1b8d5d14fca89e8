// SPDX-License-Identifier: BSD-2-Clause
// The RDMA netlink: the input damages the tables of a segment, then is what a program sends: nearly
// right requests, and bytes of any kind. Nothing may crash; each datagram that comes back is made
// of whole messages and attributes; and every dump ends.
#include <sys/mman.h>

#include "softhca/nldev/abi.h"
#include "softhca/nldev/conversation.h"
#include "softhca/nldev/resources.h"
#include "support.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 48;
constexpr std::size_t kMostBytes = 512;
constexpr unsigned kMostDatagrams = 1u << 16;  // no table has as many datagrams of objects here
constexpr std::uint32_t kPort = 77;

template <class T, std::uint32_t N>
void damage_table(device::Table<T, N>& table, Input& input) {
    // all of a large table is a lot to read
    const std::uint32_t high = input.byte() == 255 ? N + input.byte() : input.below(64);
    table.high.store(high);
    for (unsigned n = input.below(8); n; --n) {
        T& item = table[input.byte() % 64];
        input.bytes(&item.head, sizeof item.head);
        auto* bytes = reinterpret_cast<std::byte*>(&item) + sizeof item.head;
        const std::uint32_t at = input.below(sizeof(T) - sizeof item.head);
        input.bytes(bytes + at,
                    std::min<std::size_t>(input.byte(), sizeof(T) - sizeof item.head - at));
        if (!input.one_in(4)) item.head.state.store(device::kLive);
    }
}

void damage(device::Segment& s, Input& input) {
    switch (input.below(7)) {
        case 0:
            return damage_table(s.contexts, input);
        case 1:
            return damage_table(s.pds, input);
        case 2:
            return damage_table(s.cqs, input);
        case 3:
            return damage_table(s.srqs, input);
        case 4:
            return damage_table(s.qps, input);
        case 5:
            return damage_table(s.mrs, input);
        default:
            s.processes[input.byte()].pid = static_cast<std::int32_t>(input.word());
    }
}

std::size_t add_attribute(Input& input, std::byte* to) {
    constexpr std::uint16_t kTypes[] = {RDMA_NLDEV_ATTR_DEV_INDEX,
                                        RDMA_NLDEV_ATTR_DEV_INDEX,
                                        RDMA_NLDEV_ATTR_PORT_INDEX,
                                        RDMA_NLDEV_ATTR_DEV_NAME,
                                        RDMA_NLDEV_ATTR_CHARDEV_TYPE,
                                        RDMA_NLDEV_ATTR_RES_LQPN,
                                        RDMA_NLDEV_ATTR_RES_PDN,
                                        RDMA_NLDEV_ATTR_RES_CQN,
                                        RDMA_NLDEV_ATTR_RES_MRN,
                                        RDMA_NLDEV_ATTR_RES_CTXN,
                                        nldev::kResSrqn};
    nlattr header{8, input.one_in(8) ? input.value<std::uint16_t>() : input.pick(kTypes)};
    char value[12] = "uverbs";
    if (header.nla_type == RDMA_NLDEV_ATTR_CHARDEV_TYPE && !input.one_in(4)) {
        header.nla_len = 11;
    } else {
        const std::uint32_t number = input.one_in(4) ? input.word() : input.below(3);
        std::memcpy(value, &number, sizeof number);
    }
    const std::size_t size = NLA_ALIGN(header.nla_len);
    if (input.one_in(16)) header.nla_len = input.value<std::uint16_t>();
    std::memcpy(to, &header, sizeof header);
    std::memcpy(to + sizeof header, value, size - sizeof header);
    return size;
}

std::size_t add_request(Input& input, std::byte* to) {
    constexpr std::uint16_t kCommands[] = {
        RDMA_NLDEV_CMD_GET,           RDMA_NLDEV_CMD_PORT_GET,   RDMA_NLDEV_CMD_SYS_GET,
        RDMA_NLDEV_CMD_RES_GET,       RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_CMD_RES_CQ_GET,
        RDMA_NLDEV_CMD_RES_MR_GET,    RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_CMD_GET_CHARDEV,
        RDMA_NLDEV_CMD_RES_CM_ID_GET, nldev::kResCtxGet,         nldev::kResSrqGet};
    std::size_t size = sizeof(nlmsghdr);
    for (unsigned n = input.below(5); n; --n)
        size += add_attribute(input, to + size);
    nlmsghdr header{};
    header.nlmsg_len = static_cast<std::uint32_t>(size);
    header.nlmsg_type =
        input.one_in(16)
            ? input.value<std::uint16_t>()
            : static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, input.pick(kCommands)));
    header.nlmsg_flags = static_cast<std::uint16_t>((input.one_in(16) ? 0 : NLM_F_REQUEST) |
                                                    (input.one_in(2) ? NLM_F_DUMP : 0) |
                                                    (input.one_in(4) ? NLM_F_ACK : 0));
    header.nlmsg_seq = input.byte();
    if (input.one_in(16)) header.nlmsg_len = input.word();
    std::memcpy(to, &header, sizeof header);
    return size;
}

// Attributes one after another, and in those that are tables again.
void check_attributes(const std::byte* at, std::size_t size, bool table) {
    while (size > 0) {
        nlattr header;
        if (size < sizeof header) fail("%zu bytes after the last attribute", size);
        std::memcpy(&header, at, sizeof header);
        if (header.nla_len < sizeof header || header.nla_len > size)
            fail("an attribute of %u bytes where %zu are left", header.nla_len, size);
        const unsigned type = header.nla_type & NLA_TYPE_MASK;
        const auto is_table = [&](const nldev::Resource& r) { return type == r.table; };
        const auto resources = nldev::resources();
        const bool nested = table || type == RDMA_NLDEV_ATTR_RES_SUMMARY ||
                            std::any_of(resources.begin(), resources.end(), is_table);
        if (nested) check_attributes(at + sizeof header, header.nla_len - sizeof header, !table);
        const std::size_t step = std::min<std::size_t>(NLA_ALIGN(header.nla_len), size);
        at += step;
        size -= step;
    }
}

// True: it held the end of a dump.
bool check_datagram(const std::vector<std::byte>& datagram) {
    bool done = false;
    const std::byte* at = datagram.data();
    for (std::size_t size = datagram.size(); size > 0;) {
        nlmsghdr header;
        if (size < sizeof header) fail("%zu bytes after the last message", size);
        std::memcpy(&header, at, sizeof header);
        if (header.nlmsg_len < sizeof header || header.nlmsg_len > size)
            fail("a message of %u bytes where %zu are left", header.nlmsg_len, size);
        if (header.nlmsg_pid != kPort) fail("a message to %u", header.nlmsg_pid);
        done = done || header.nlmsg_type == NLMSG_DONE;
        if (header.nlmsg_type != NLMSG_ERROR && header.nlmsg_type != NLMSG_DONE) {
            if (datagram.size() > nldev::kDatagramBytes) fail("%zu bytes", datagram.size());
            check_attributes(at + sizeof header, header.nlmsg_len - sizeof header, false);
        }
        const std::size_t step = std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), size);
        at += step;
        size -= step;
    }
    return done;
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softhca;
    using namespace softhca::fuzz;
    Input input(data, size);
    device::Segment& s = segment();
    for (unsigned n = input.below(8); n; --n)
        damage(s, input);
    nldev::Conversation conversation;
    std::vector<std::byte> datagram;
    for (unsigned n = 0; n < kMostOperations && !input.empty(); ++n) {
        const device::Segment* fabric = input.one_in(16) ? nullptr : &s;
        std::byte bytes[kMostBytes];
        std::size_t length = 0;
        if (input.one_in(8)) {
            length = input.byte();
            input.bytes(bytes, length);
        } else {
            for (unsigned count = 1 + input.below(3); count; --count)
                length += add_request(input, bytes + length);
        }
        conversation.request({bytes, length}, {kPort, input.one_in(2)}, fabric);
        for (unsigned few = input.below(4); few && conversation.next(fabric, &datagram); --few) {
            check_datagram(datagram);
            if (input.one_in(8)) conversation.give_back(std::move(datagram));
        }
    }
    unsigned read = 0;
    while (conversation.next(&s, &datagram)) {
        check_datagram(datagram);
        if (++read > kMostDatagrams) fail("a dump that does not end");
    }
    if (madvise(&s, sizeof s, MADV_DONTNEED) != 0) fail("cannot clear the segment");
    return 0;
}
