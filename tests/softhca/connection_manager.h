// SPDX-License-Identifier: BSD-2-Clause
// The commands of rdma/rdma_user_cm.h as a program without librdmacm would give them, so that each
// answer is seen as the device gives it.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "verbs_fixture.h"

namespace softhca::test {

// enum rdma_cm_event_type, which is in no kernel header.
enum CmEvent : std::uint32_t {
    kAddressResolved,
    kAddressError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
    kMulticastJoin,
    kMulticastError,
    kAddressChange,
    kTimeWaitExit,
};

inline sockaddr_in6 address_of(const std::string& ip, std::uint16_t port = 0) {
    sockaddr_in6 out{};
    sockaddr_in in{};
    if (inet_pton(AF_INET6, ip.c_str(), &out.sin6_addr) == 1) {
        out.sin6_family = AF_INET6;
        out.sin6_port = htons(port);
        return out;
    }
    if (inet_pton(AF_INET, ip.c_str(), &in.sin_addr) != 1) throw VerbsFailure("no address: " + ip);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&out, &in, sizeof in);
    return out;
}

inline std::uint16_t port_of(const sockaddr_in6& address) { return ntohs(address.sin6_port); }

// An event channel. The commands return 0 or errno.
class Manager {
public:
    explicit Manager(int flags = 0)
        : fd_(open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | flags)) {
        if (fd_ < 0) fail("opening /dev/infiniband/rdma_cm");
    }
    ~Manager() {
        if (fd_ >= 0) ::close(fd_);
    }
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;
    int fd() const { return fd_; }
    void close() { ::close(std::exchange(fd_, -1)); }

    template <class T>
    int run(std::uint32_t number, const T& command, std::uint16_t room = 0) const {
        struct {
            rdma_ucm_cmd_hdr header;
            T body;
        } message{{number, sizeof(T), room}, command};
        const ssize_t written = write(fd_, &message, sizeof message.header + sizeof(T));
        if (written < 0) return errno;
        EXPECT_EQ(written, static_cast<ssize_t>(sizeof message.header + sizeof(T)));
        return 0;
    }
    // Runs a command whose answer goes to `response`.
    template <class T, class Answer>
    int ask(std::uint32_t number, T command, Answer& answer) const {
        command.response = reinterpret_cast<std::uintptr_t>(&answer);
        return run(number, command, sizeof answer);
    }

    std::uint32_t create(std::uint64_t uid, std::uint16_t space = RDMA_PS_TCP) const {
        rdma_ucm_create_id_resp answer{};
        rdma_ucm_create_id wanted{};
        wanted.uid = uid;
        wanted.ps = space;
        require(ask(RDMA_USER_CM_CMD_CREATE_ID, wanted, answer), "CREATE_ID");
        return answer.id;
    }
    int destroy(std::uint32_t id, std::uint32_t* reported = nullptr) const {
        rdma_ucm_destroy_id_resp answer{};
        rdma_ucm_destroy_id wanted{};
        wanted.id = id;
        const int error = ask(RDMA_USER_CM_CMD_DESTROY_ID, wanted, answer);
        if (reported != nullptr) *reported = answer.events_reported;
        return error;
    }
    int bind(std::uint32_t id, const sockaddr_in6& address) const {
        rdma_ucm_bind_ip wanted{};
        wanted.id = id;
        wanted.addr = address;
        return run(RDMA_USER_CM_CMD_BIND_IP, wanted);
    }
    int listen(std::uint32_t id, std::uint32_t backlog = 0) const {
        return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
    }
    int resolve(std::uint32_t id, const sockaddr_in6& to) const {
        rdma_ucm_resolve_ip wanted{};
        wanted.id = id;
        wanted.dst_addr = to;
        wanted.timeout_ms = 2000;
        return run(RDMA_USER_CM_CMD_RESOLVE_IP, wanted);
    }
    int resolve_route(std::uint32_t id) const {
        return run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
    }
    rdma_ucm_query_route_resp route(std::uint32_t id) const {
        rdma_ucm_query_route_resp answer{};
        rdma_ucm_query wanted{};
        wanted.id = id;
        require(ask(RDMA_USER_CM_CMD_QUERY_ROUTE, wanted, answer), "QUERY_ROUTE");
        return answer;
    }
    static rdma_ucm_conn_param parameters(std::uint32_t qpn, const std::string& data = {}) {
        rdma_ucm_conn_param out{};
        out.qp_num = qpn;
        out.responder_resources = 3;
        out.initiator_depth = 2;
        out.retry_count = 5;
        out.rnr_retry_count = 7;
        out.valid = 1;
        out.private_data_len = static_cast<std::uint8_t>(data.size());
        std::memcpy(out.private_data, data.data(), data.size());
        return out;
    }
    int connect(std::uint32_t id, const rdma_ucm_conn_param& wanted) const {
        rdma_ucm_connect command{};
        command.conn_param = wanted;
        command.id = id;
        return run(RDMA_USER_CM_CMD_CONNECT, command);
    }
    // valid = 0 confirms a reply.
    int accept(std::uint32_t id, std::uint64_t uid, const rdma_ucm_conn_param& wanted) const {
        rdma_ucm_accept command{};
        command.uid = uid;
        command.conn_param = wanted;
        command.id = id;
        return run(RDMA_USER_CM_CMD_ACCEPT, command);
    }
    int confirm(std::uint32_t id) const { return accept(id, 0, rdma_ucm_conn_param{}); }
    int reject(std::uint32_t id, const std::string& data = {}, std::uint8_t reason = 0) const {
        rdma_ucm_reject command{};
        command.id = id;
        command.reason = reason;
        command.private_data_len = static_cast<std::uint8_t>(data.size());
        std::memcpy(command.private_data, data.data(), data.size());
        return run(RDMA_USER_CM_CMD_REJECT, command);
    }
    int disconnect(std::uint32_t id) const {
        return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
    }
    // Joins the group of that address. JOIN_MCAST, as librdmacm's with AF_IB.
    int join(std::uint32_t id, const std::string& ip, std::uint64_t uid, std::uint32_t* group,
             std::uint16_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER) const {
        const sockaddr_in6 address = address_of(ip);
        rdma_ucm_join_mcast wanted{};
        wanted.uid = uid;
        wanted.id = id;
        wanted.addr_size = static_cast<std::uint16_t>(
            address.sin6_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
        wanted.join_flags = flags;
        std::memcpy(&wanted.addr, &address, sizeof address);
        rdma_ucm_create_id_resp answer{};
        const int error = ask(RDMA_USER_CM_CMD_JOIN_MCAST, wanted, answer);
        *group = answer.id;
        return error;
    }
    int join_ip(std::uint32_t id, const std::string& ip, std::uint64_t uid,
                std::uint32_t* group) const {
        rdma_ucm_join_ip_mcast wanted{};
        wanted.uid = uid;
        wanted.id = id;
        wanted.addr = address_of(ip);
        rdma_ucm_create_id_resp answer{};
        const int error = ask(RDMA_USER_CM_CMD_JOIN_IP_MCAST, wanted, answer);
        *group = answer.id;
        return error;
    }
    int leave(std::uint32_t group, std::uint32_t* reported) const {
        rdma_ucm_destroy_id_resp answer{};
        rdma_ucm_destroy_id wanted{};
        wanted.id = group;
        const int error = ask(RDMA_USER_CM_CMD_LEAVE_MCAST, wanted, answer);
        *reported = answer.events_reported;
        return error;
    }
    int qp_attributes(std::uint32_t id, ibv_qp_state state, ib_uverbs_qp_attr& out) const {
        rdma_ucm_init_qp_attr wanted{};
        wanted.id = id;
        wanted.qp_state = state;
        return ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, wanted, out);
    }
    int migrate(std::uint32_t id, const Manager& from, std::uint32_t* reported) const {
        rdma_ucm_migrate_resp answer{};
        rdma_ucm_migrate_id wanted{};
        wanted.id = id;
        wanted.fd = static_cast<std::uint32_t>(from.fd());
        const int error = ask(RDMA_USER_CM_CMD_MIGRATE_ID, wanted, answer);
        *reported = answer.events_reported;
        return error;
    }
    template <class T>
    int set_option(std::uint32_t id, std::uint32_t name, T value) const {
        rdma_ucm_set_option wanted{};
        wanted.optval = reinterpret_cast<std::uintptr_t>(&value);
        wanted.id = id;
        wanted.level = RDMA_OPTION_ID;
        wanted.optname = name;
        wanted.optlen = sizeof value;
        return run(RDMA_USER_CM_CMD_SET_OPTION, wanted);
    }

    bool readable(int ms = 0) const {
        pollfd waiting{fd_, POLLIN, 0};
        return poll(&waiting, 1, ms) == 1 && (waiting.revents & POLLIN) != 0;
    }
    int get_event(rdma_ucm_event_resp& event) const {
        event = {};
        return ask(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, event);
    }
    // The next event, which must be of that type.
    rdma_ucm_event_resp expect(CmEvent type, int ms = 30000) const {
        rdma_ucm_event_resp event{};
        if (!readable(ms)) {
            ADD_FAILURE() << "no event, but " << type << " expected";
            return event;
        }
        require(get_event(event), "GET_EVENT");
        EXPECT_EQ(event.event, type);
        return event;
    }
    bool is_silent(int ms = 20) const { return !readable(ms); }

    // An id that listens on the loopback address, and its port.
    std::uint32_t listener(std::uint64_t uid, std::uint16_t* port,
                           std::uint16_t space = RDMA_PS_TCP, std::uint32_t backlog = 0) const {
        const std::uint32_t id = create(uid, space);
        require(bind(id, address_of("127.0.0.1")), "BIND_IP");
        require(listen(id, backlog), "LISTEN");
        *port = port_of(route(id).src_addr);
        return id;
    }
    // An id that knows the way to that port.
    std::uint32_t routed(std::uint64_t uid, std::uint16_t port,
                         std::uint16_t space = RDMA_PS_TCP) const {
        const std::uint32_t id = create(uid, space);
        require(resolve(id, address_of("127.0.0.1", port)), "RESOLVE_IP");
        expect(kAddressResolved);
        require(resolve_route(id), "RESOLVE_ROUTE");
        expect(kRouteResolved);
        return id;
    }

private:
    int fd_;
};

inline constexpr std::uint64_t kServerUid = 0x5e5e, kClientUid = 0xc1c1, kAcceptedUid = 0xacac;

// Both sides of a connection, as far as a test takes it.
struct CmSides {
    explicit CmSides(std::uint16_t space = RDMA_PS_TCP) {
        listener = server.listener(kServerUid, &port, space);
        active = client.routed(kClientUid, port, space);
    }
    rdma_ucm_event_resp request(const std::string& data = {}) {
        require(client.connect(active, Manager::parameters(0x111, data)), "CONNECT");
        const rdma_ucm_event_resp event = server.expect(kConnectRequest);
        passive = event.id;
        return event;
    }
    rdma_ucm_event_resp reply(const std::string& data = {}) {
        require(server.accept(passive, kAcceptedUid, Manager::parameters(0x222, data)), "ACCEPT");
        return client.expect(kConnectResponse);
    }
    void establish() {
        request();
        reply();
        require(client.confirm(active), "ACCEPT as a confirmation");
        EXPECT_EQ(server.expect(kEstablished).uid, kAcceptedUid);
    }
    Manager server, client;
    std::uint16_t port = 0;
    std::uint32_t listener = 0, active = 0, passive = 0;
};

inline std::string data_of(const rdma_ucm_event_resp& event) {
    const auto& conn = event.param.conn;
    return {reinterpret_cast<const char*>(conn.private_data), conn.private_data_len};
}
inline std::string padded(std::string text, std::size_t length) {
    text.resize(length);
    return text;
}

}  // namespace softhca::test
