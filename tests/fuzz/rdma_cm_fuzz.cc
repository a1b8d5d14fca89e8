// SPDX-License-Identifier: BSD-2-Clause
// The command interface of rdma_cm (rdma/rdma_user_cm.h): the input is a sequence of commands on
// some event channels of one process, which is a client and a server of itself. Commands are nearly
// right, corrupt, or bytes of any kind. Nothing may crash or wait; an answer stays within the room
// that it was given; and when all channels are closed, no id and no event is left.
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "softhca/base/libc.h"
#include "softhca/device/fabric.h"
#include "softhca/device/port.h"
#include "softhca/device/socket_address.h"
#include "softhca/rdmacm/abi.h"
#include "softhca/rdmacm/rdmacm.h"
#include "softhca/uverbs/uverbs.h"
#include "support.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 96, kMostChannels = 3;
constexpr std::size_t kRoom = 512;
constexpr std::byte kUntouched{0xa5};

std::byte* inaccessible() {
    static std::byte* const at = guarded_pages(4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
    return at;
}

class Session {
public:
    explicit Session(Input& input) : input_(input) { open(); }

    void run() {
        for (unsigned n = 0; n < kMostOperations && !input_.empty(); ++n)
            step();
        while (!channels_.empty())
            close_one();
        const device::Segment& segment = device::Fabric::current()->segment();
        const unsigned ids = segment.cm_ids.in_use.load(), events = segment.cm_events.in_use.load();
        const unsigned groups = segment.cm_groups.in_use.load();
        if (ids != 0 || events != 0 || groups != 0)
            fail("%u ids, %u events and %u groups are left", ids, events, groups);
    }

private:
    void open() {
        const int fd = rdmacm::open_channel(O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) fail("cannot open a channel: errno %d", errno);
        channels_.push_back(fd);
    }
    void close_one() {
        const std::size_t which = input_.byte() % channels_.size();
        const int fd = channels_[which];
        channels_.erase(channels_.begin() + static_cast<std::ptrdiff_t>(which));
        rdmacm::closing(fd);
        uverbs::closing(fd);
        libc::close(fd);
    }
    int channel() { return channels_[input_.byte() % channels_.size()]; }
    std::uint32_t id() {
        if (ids_.empty() || input_.one_in(16))
            return input_.one_in(2) ? input_.byte() : input_.word();
        return ids_[input_.byte() % ids_.size()];
    }
    // Few ports, so that clients find listeners. Returns the size of the address.
    template <class Address>
    std::uint16_t put_address(Address& out) {
        if (sizeof out >= sizeof(device::GidSockaddr) && input_.one_in(3))
            return put_gid_address(reinterpret_cast<std::byte*>(&out));
        sockaddr_in6 address{};
        const auto port =
            htons(static_cast<std::uint16_t>(input_.one_in(8) ? 0 : 7000 + input_.below(3)));
        if (input_.one_in(3)) {
            address.sin6_family = AF_INET6;
            address.sin6_port = port;
            if (!input_.one_in(3)) address.sin6_addr = in6addr_loopback;
        } else {
            sockaddr_in in{};
            in.sin_family = AF_INET;
            in.sin_port = port;
            if (!input_.one_in(3)) in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            std::memcpy(&address, &in, sizeof in);
        }
        if (input_.one_in(8)) put_group(address);
        if (input_.one_in(16)) input_.bytes(&address, sizeof address);
        std::memcpy(&out, &address, std::min(sizeof out, sizeof address));
        return size_of(address);
    }
    static std::uint16_t size_of(const sockaddr_in6& address) {
        return address.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    }
    std::uint16_t put_gid_address(std::byte* out) {
        device::GidSockaddr address{};
        address.family = AF_IB;
        address.pkey = 0xffff;
        const device::Segment& segment = device::Fabric::current()->segment();
        if (!input_.one_in(3)) device::port_at(segment, 0).gid(0).copy_to(address.gid);
        if (input_.one_in(8)) address.gid[input_.byte() % 16] ^= 1;
        constexpr std::uint64_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB};
        const std::uint64_t port = input_.one_in(8) ? 0 : 7000 + input_.below(3);
        address.service = htobe64(input_.pick(kSpaces) << 16 | port);
        address.service_mask = ~std::uint64_t{0};
        if (input_.one_in(16)) input_.bytes(&address, sizeof address);
        std::memcpy(out, &address, sizeof address);
        return sizeof address;
    }
    void put_group(sockaddr_in6& address) {
        address = {};
        if (input_.one_in(3)) {
            address.sin6_family = AF_INET6;
            address.sin6_addr.s6_addr[0] = 0xff;
            address.sin6_addr.s6_addr[15] = input_.byte() & 3;
            return;
        }
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = htonl(0xe0000000 | (input_.byte() & 3));
        std::memcpy(&address, &in, sizeof in);
    }
    void put_parameters(rdma_ucm_conn_param& out) {
        out.qp_num = input_.word();
        out.valid = !input_.one_in(4);
        out.private_data_len =
            static_cast<std::uint8_t>(input_.one_in(4) ? input_.byte() : input_.below(93));
        input_.bytes(&out.responder_resources, 5);
        std::memset(out.private_data, input_.byte(), sizeof out.private_data);
        if (input_.one_in(4)) {  // a header of IP addresses, as AF_IB may have it
            std::memset(out.private_data, 0, 36);
            out.private_data[1] = input_.byte();
            out.private_data[32] = 127;
            out.private_data[35] = 1;
        }
    }

    template <class T>
    int send(std::uint32_t number, const T& command) {
        return write<false>(number, command);
    }
    // Sends a command that has an answer.
    template <class T>
    int ask(std::uint32_t number, const T& command) {
        return write<true>(number, command);
    }
    template <bool kHasAnswer, class T>
    int write(std::uint32_t number, const T& command) {
        struct {
            rdma_ucm_cmd_hdr header;
            T body;
        } message{{number, sizeof(T), 0}, command};
        std::memset(answer_, static_cast<int>(kUntouched), kRoom);
        std::size_t room = 0;
        if constexpr (kHasAnswer) {
            room = input_.one_in(8) ? input_.below(400) : 400;
            const bool astray = input_.one_in(32);
            const auto where = reinterpret_cast<std::uintptr_t>(astray ? inaccessible() : answer_);
            message.body.response = where;
            message.header.out = static_cast<std::uint16_t>(room);
        }
        if (input_.one_in(32)) message.header.in = input_.value<std::uint16_t>();
        if (input_.one_in(32)) message.header.cmd = input_.below(40);
        std::size_t size = sizeof message.header + sizeof(T);
        if (input_.one_in(32)) size = input_.below(static_cast<std::uint32_t>(size));
        const ssize_t result = rdmacm::write(channel(), &message, size);
        for (std::size_t i = room; i < kRoom; ++i)
            if (answer_[i] != kUntouched)
                fail("command %u wrote byte %zu of %zu", message.header.cmd, i, room);
        if (result < 0 && errno <= 0) fail("command %u failed without errno", message.header.cmd);
        return result < 0 ? errno : 0;
    }
    std::uint32_t answered(std::size_t offset = 0) const {
        std::uint32_t word;
        std::memcpy(&word, answer_ + offset, sizeof word);
        return word;
    }

    void create() {
        rdma_ucm_create_id wanted{};
        wanted.uid = input_.byte();
        constexpr std::uint16_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, 7};
        wanted.ps = input_.pick(kSpaces);
        wanted.qp_type = input_.byte();
        if (ask(RDMA_USER_CM_CMD_CREATE_ID, wanted) == 0) ids_.push_back(answered());
    }
    void get_event() {
        if (ask(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}) == 0)
            ids_.push_back(answered(offsetof(rdma_ucm_event_resp, id)));
    }
    void resolve() {
        if (input_.one_in(2)) {
            rdma_ucm_resolve_ip wanted{};
            if (input_.one_in(4)) put_address(wanted.src_addr);
            put_address(wanted.dst_addr);
            wanted.id = id();
            send(RDMA_USER_CM_CMD_RESOLVE_IP, wanted);
        } else {
            rdma_ucm_resolve_addr wanted{};
            wanted.id = id();
            wanted.dst_size = put_address(wanted.dst_addr);
            if (input_.one_in(8)) wanted.dst_size = input_.byte();
            if (input_.one_in(4)) wanted.src_size = put_address(wanted.src_addr);
            send(RDMA_USER_CM_CMD_RESOLVE_ADDR, wanted);
        }
    }
    void bind() {
        if (input_.one_in(2)) {
            rdma_ucm_bind_ip wanted{};
            put_address(wanted.addr);
            wanted.id = id();
            send(RDMA_USER_CM_CMD_BIND_IP, wanted);
        } else {
            rdma_ucm_bind wanted{};
            wanted.id = id();
            wanted.addr_size = put_address(wanted.addr);
            if (input_.one_in(8)) wanted.addr_size = input_.byte();
            send(RDMA_USER_CM_CMD_BIND, wanted);
        }
    }
    void join() {
        sockaddr_in6 address{};
        put_group(address);
        if (input_.one_in(8)) put_address(address);
        if (input_.one_in(2)) {
            rdma_ucm_join_ip_mcast wanted{};
            wanted.uid = input_.byte();
            wanted.id = id();
            wanted.addr = address;
            if (ask(RDMA_USER_CM_CMD_JOIN_IP_MCAST, wanted) == 0) groups_.push_back(answered());
        } else {
            rdma_ucm_join_mcast wanted{};
            wanted.uid = input_.byte();
            wanted.id = id();
            wanted.addr_size = size_of(address);
            std::memcpy(&wanted.addr, &address, sizeof address);
            if (input_.one_in(4)) {
                wanted.addr_size = put_address(wanted.addr);
                // The first byte of AF_IB's GID: a group.
                if (input_.one_in(2))
                    reinterpret_cast<std::byte*>(&wanted.addr)[8] = std::byte{0xff};
            }
            if (input_.one_in(8)) wanted.addr_size = input_.byte();
            wanted.join_flags = static_cast<std::uint16_t>(input_.below(3));
            if (ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted) == 0) groups_.push_back(answered());
        }
    }
    void leave() {
        rdma_ucm_destroy_id wanted{};
        wanted.id = groups_.empty() || input_.one_in(8) ? input_.byte()
                                                        : groups_[input_.byte() % groups_.size()];
        ask(RDMA_USER_CM_CMD_LEAVE_MCAST, wanted);
    }
    void query() {
        rdma_ucm_query wanted{};
        wanted.id = id();
        wanted.option = input_.below(4);
        ask(input_.one_in(2) ? RDMA_USER_CM_CMD_QUERY : RDMA_USER_CM_CMD_QUERY_ROUTE, wanted);
    }
    void set_option() {
        std::uint64_t value = input_.byte();
        rdma_ucm_set_option wanted{};
        wanted.optval = input_.one_in(16) ? reinterpret_cast<std::uintptr_t>(inaccessible())
                                          : reinterpret_cast<std::uintptr_t>(&value);
        wanted.id = id();
        wanted.level = input_.below(3);
        wanted.optname = input_.below(5);
        wanted.optlen = input_.one_in(4) ? input_.byte() : input_.one_in(2) ? 4 : 1;
        send(RDMA_USER_CM_CMD_SET_OPTION, wanted);
    }

    void step() {
        switch (input_.below(23)) {
            case 20:
            case 21:
                return join();
            case 22:
                return leave();
            case 0:
                if (channels_.size() < kMostChannels) open();
                return;
            case 1:
                if (channels_.size() > 1) close_one();
                return;
            case 2:
            case 3:
                return create();
            case 4:
            case 5:
            case 6:
                return get_event();
            case 7:
                return bind();
            case 8:
                return resolve();
            case 9:
                send(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id(), input_.word()});
                return;
            case 10:
                send(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id(), input_.below(3)});
                return;
            case 11: {
                rdma_ucm_connect wanted{};
                put_parameters(wanted.conn_param);
                wanted.id = id();
                send(RDMA_USER_CM_CMD_CONNECT, wanted);
                return;
            }
            case 12:
            case 13: {
                rdma_ucm_accept wanted{};
                put_parameters(wanted.conn_param);
                wanted.uid = input_.byte();
                wanted.id = id();
                send(RDMA_USER_CM_CMD_ACCEPT, wanted);
                return;
            }
            case 14: {
                rdma_ucm_reject wanted{};
                wanted.id = id();
                wanted.private_data_len = input_.byte();
                wanted.reason = input_.one_in(2) ? 0 : input_.byte();
                send(RDMA_USER_CM_CMD_REJECT, wanted);
                return;
            }
            case 15:
                send(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id()});
                return;
            case 16: {
                rdma_ucm_destroy_id wanted{};
                wanted.id = id();
                ask(RDMA_USER_CM_CMD_DESTROY_ID, wanted);
                return;
            }
            case 17:
                if (input_.one_in(2)) return query();
                return set_option();
            case 18: {
                rdma_ucm_migrate_id wanted{};
                wanted.id = id();
                wanted.fd =
                    static_cast<std::uint32_t>(input_.one_in(8) ? input_.byte() : channel());
                ask(RDMA_USER_CM_CMD_MIGRATE_ID, wanted);
                return;
            }
            default: {
                rdma_ucm_init_qp_attr wanted{};
                wanted.id = id();
                wanted.qp_state = input_.below(8);
                if (input_.one_in(2))
                    ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, wanted);
                else
                    send(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id(), input_.below(12)});
            }
        }
    }

    Input& input_;
    std::vector<int> channels_;
    std::vector<std::uint32_t> ids_, groups_;
    alignas(8) std::byte answer_[kRoom];
};

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    softhca::fuzz::use_own_fabric("rdma-cm", *arguments);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    softhca::fuzz::Input input(data, size);
    softhca::fuzz::Session(input).run();
    return 0;
}
