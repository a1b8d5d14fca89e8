// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that nobody should have sent, and what the connector's thread is to the program.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "protocol/wireup/connector_port.h"
#include "protocol/wireup/connector_wire.h"
#include "tests/protocol/connector_support.h"

namespace heddle::protocol::test {
namespace {

using Bytes = std::array<std::byte, kDatagramBytes>;

// A process with a UD QP of its own. It knows the name of its target, and so the Q_Key.
class Stranger {
public:
    explicit Stranger(const ProcessName& to) : Stranger(to, to.qkey()) {}
    Stranger(const ProcessName& to, std::uint32_t qkey) : endpoint_(options()) {
        softhca::test::Address address;
        address.target_qpn = to.ud_qpn;
        address.lid = to.lid;
        address.qkey = qkey;
        endpoint_.connect(address);
    }
    void send(std::span<const std::byte> bytes) {
        std::copy(bytes.begin(), bytes.end(),
                  reinterpret_cast<std::byte*>(endpoint_.memory->data()));
        softhca::test::Work work;
        work.sges = {endpoint_.memory->sge(0, bytes.size())};
        ASSERT_TRUE(endpoint_.run(work));
    }
    std::uint32_t qpn() const { return endpoint_.qp->qp_num; }
    ProcessName process() const {
        ProcessName name;
        name.nonce = 99;
        name.ud_qpn = qpn();
        name.lid = softhca::test::port_attributes(endpoint_.context.get()).lid;
        return name;
    }

private:
    static softhca::test::EndpointOptions options() {
        softhca::test::EndpointOptions options;
        options.transport = softhca::test::Transport::kUd;
        return options;
    }
    softhca::test::Endpoint endpoint_;
};

Datagram request_of(const Stranger& stranger, const EndpointAddress& to) {
    Datagram request;
    request.id = 5;
    request.from.flags = EndpointAddress::kXrc;
    request.from.process = stranger.process();
    request.to = to;
    request.qpn = 1234;
    request.mtu = IBV_MTU_1024;
    request.reads = 1;
    return request;
}

Bytes bytes_of(const Datagram& datagram) {
    Bytes bytes;
    write(datagram, bytes);
    return bytes;
}

TEST(HostileDatagrams, AreCountedAndIgnored) {
    Peer a(true), b(true);
    Stranger stranger(b.connector->process());
    const Bytes good = bytes_of(request_of(stranger, b.name()));
    std::uint64_t sent = 0;
    const auto send = [&](std::span<const std::byte> bytes) {
        stranger.send(bytes);
        ++sent;
        ASSERT_TRUE(b.soon([&](const auto& counts) { return counts.malformed == sent; }));
    };
    for (const std::size_t length : {std::size_t{1}, std::size_t{16}, kDatagramBytes - 1})
        send(std::span(good).first(length));
    const std::vector<std::byte> longer(kDatagramBytes + 1);
    send(longer);
    Bytes bad = good;
    bad[0] ^= std::byte{1};  // magic
    send(bad);
    bad = good;
    bad[5] = std::byte{9};  // kind
    send(bad);
    bad = good;
    bad[120] = std::byte{77};  // MTU
    send(bad);
    // In the name of another process.
    Datagram false_name = request_of(stranger, b.name());
    false_name.from.process = a.connector->process();
    send(bytes_of(false_name));
    // From another port than it was sent from, and by another kind of network.
    false_name = request_of(stranger, b.name());
    ++false_name.from.process.lid;
    send(bytes_of(false_name));
    false_name = request_of(stranger, b.name());
    false_name.from.flags |= EndpointAddress::kEthernet;
    send(bytes_of(false_name));
    EXPECT_EQ(b.connector->counts().requests_received, 0u);
    EXPECT_TRUE(a.wait(*a.connect(b.name())));
}

// Whoever may send a datagram may send one as long as a packet: that costs the receiver a look.
TEST(HostileDatagrams, OfAnyLengthDoNotBreakTheQueue) {
    Peer a(true), b(true);
    Stranger stranger(b.connector->process());
    const std::vector<std::byte> longest(4096), longer(kDatagramBytes + 25);
    constexpr std::uint64_t kMany = 1200;
    for (std::uint64_t sent = 0; sent < kMany; ++sent)
        ASSERT_NO_FATAL_FAILURE(stranger.send(sent % 2 != 0 ? longest : longer));
    // Each has been read, or has found no receive: none is lost for good.
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    const std::uint64_t before = b.connector->counts().malformed;
    EXPECT_GT(before, 0u);
    for (std::uint64_t more = 1; more <= 600; ++more) {
        ASSERT_NO_FATAL_FAILURE(stranger.send(longest));
        ASSERT_TRUE(b.soon([&](const auto& counts) { return counts.malformed == before + more; }));
    }
    b.post_receive();
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
}

// Numbers of queue pairs can be guessed, names cannot.
TEST(HostileDatagrams, WithoutTheNameDoNotArrive) {
    Peer a(true), b(true);
    Stranger stranger(b.connector->process(), a.connector->process().qkey());
    for (int k = 0; k < 10; ++k)
        ASSERT_NO_FATAL_FAILURE(stranger.send(bytes_of(request_of(stranger, b.name()))));
    // The channel is held: when it is released, its process disconnects, and the target goes.
    const auto channel = a.connect(b.name());
    EXPECT_TRUE(a.wait(*channel));
    // A request that is not answered at once comes again.
    EXPECT_EQ(b.connector->counts().targets, 1u);
    EXPECT_EQ(b.connector->counts().malformed, 0u);
}

// A broken queue pair is repaired as often as it breaks, but not all the time.
class PortRepairs : public testing::Test {
protected:
    explicit PortRepairs() { pd_.reset(check(ibv_alloc_pd(context_.get()), "ibv_alloc_pd")); }
    static constexpr std::uint32_t kQkey = 17;
    static constexpr unsigned kReceives = 4;
    void break_it(ConnectorPort& port) {
        ibv_qp_attr error{};
        error.qp_state = IBV_QPS_ERR;
        ASSERT_EQ(ibv_modify_qp(port.qp(), &error, IBV_QP_STATE), 0);
    }
    static bool receive(ConnectorPort& port) {
        return port.receive([](const ConnectorPort::Arrival&) { ADD_FAILURE(); });
    }
    static ibv_qp_state state(ConnectorPort& port) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr unused{};
        EXPECT_EQ(ibv_query_qp(port.qp(), &attributes, IBV_QP_STATE, &unused), 0);
        return attributes.qp_state;
    }
    const Owned<ibv_context> context_ = softhca::test::open_device();
    Owned<ibv_pd> pd_;
};

TEST_F(PortRepairs, AreNotCounted) {
    ConnectorPort port(context_.get(), pd_.get(), verbs::local_port(context_.get()), kReceives,
                       kQkey, std::chrono::seconds(0));
    for (int k = 0; k < 1100; ++k) {
        ASSERT_NO_FATAL_FAILURE(break_it(port));
        ASSERT_TRUE(receive(port));
        ASSERT_EQ(state(port), IBV_QPS_RTS) << "repair " << k;
        ASSERT_FALSE(port.next_repair());
    }
}

TEST_F(PortRepairs, HaveAPauseBetweenThem) {
    ConnectorPort port(context_.get(), pd_.get(), verbs::local_port(context_.get()), kReceives,
                       kQkey, std::chrono::hours(1));
    ASSERT_NO_FATAL_FAILURE(break_it(port));
    ASSERT_TRUE(receive(port));
    EXPECT_EQ(state(port), IBV_QPS_RTS) << "the first at once";
    ASSERT_NO_FATAL_FAILURE(break_it(port));
    ASSERT_TRUE(receive(port));
    EXPECT_EQ(state(port), IBV_QPS_ERR);
    ASSERT_TRUE(port.next_repair());
    EXPECT_GT(*port.next_repair(), ConnectorPort::Clock::now());
}

// The thread holds a mutex that callers need.
TEST_F(PortRepairs, TakeNoMoreDatagramsAtOnceThanBounded) {
    constexpr unsigned kMany = 3 * ConnectorPort::kAtOnce;
    ConnectorPort port(context_.get(), pd_.get(), verbs::local_port(context_.get()), kMany, kQkey);
    ProcessName to;
    to.ud_qpn = port.address().qpn;
    to.lid = port.address().lid;
    Stranger stranger(to, kQkey);
    for (unsigned k = 0; k < kMany; ++k)
        ASSERT_NO_FATAL_FAILURE(stranger.send(std::vector<std::byte>(k % 2 != 0 ? 1 : 4096)));
    std::size_t taken = 0, most = 0;
    for (bool all = false; !all;) {
        const std::size_t before = taken;
        all = port.receive([&](const ConnectorPort::Arrival& arrival) {
            EXPECT_EQ(arrival.length, taken % 2 != 0 ? 1u : 4096u);
            EXPECT_EQ(arrival.source.qpn, stranger.qpn());
            EXPECT_EQ(arrival.source.lid, to.lid);
            ++taken;
        });
        most = std::max(most, taken - before);
    }
    EXPECT_EQ(taken, kMany);
    EXPECT_LT(most, 2 * ConnectorPort::kAtOnce);
}

// What can be parsed and is wrong all the same.
TEST(HostileDatagrams, OfAGoodFormAreAnsweredOrIgnored) {
    Peer a(true), b(true);
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    Stranger stranger(b.connector->process());
    Datagram bye;
    bye.kind = DatagramKind::kBye;
    bye.from.process = stranger.process();
    stranger.send(bytes_of(bye));
    Datagram reply = request_of(stranger, {});
    reply.kind = DatagramKind::kReply;
    stranger.send(bytes_of(reply));
    // One number, two contents: only the first counts.
    Datagram request = request_of(stranger, b.name());
    stranger.send(bytes_of(request));
    request.psn = 1;
    stranger.send(bytes_of(request));
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.refused == 1; }));
    EXPECT_EQ(b.connector->counts().targets, 2u);
    // Not of the endpoint's transport.
    request.id = 6;
    request.from.flags = 0;
    stranger.send(bytes_of(request));
    EXPECT_TRUE(b.soon([](const auto& counts) { return counts.refused == 2; }));
    EXPECT_EQ(b.connector->counts().malformed, 0u);
    b.post_receive();
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
}

TEST(HostileDatagrams, OfAnyKindLeaveItAtWork) {
    Peer a(true), b(true);
    Stranger stranger(b.connector->process());
    std::minstd_rand random(3);
    for (int k = 0; k < 500; ++k) {
        Datagram datagram = request_of(stranger, b.name());
        datagram.kind = static_cast<DatagramKind>(1 + random() % 3);
        datagram.id = random() % 200;
        Bytes bytes = bytes_of(datagram);
        if (random() % 2 != 0) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        stranger.send(bytes);
    }
    const auto channel = a.connect(b.name());
    ASSERT_TRUE(a.wait(*channel));
    const Connector::Counts counts = b.connector->counts();
    EXPECT_GT(counts.malformed, 0u);
    EXPECT_GT(counts.targets, 1u);
    EXPECT_LE(counts.targets, counts.requests_received);
    b.post_receive();
    ASSERT_TRUE(a.send(*channel, 1));
    EXPECT_TRUE(b.receive(1, a.name()));
}

TEST(PathCache, KeepsThePathsUsedLast) {
    const auto context = softhca::test::open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    PathCache cache(pd.get(), verbs::local_port(context.get()));
    EndpointAddress name = name_of(verbs::local_port(context.get()));
    const auto find = [&](std::uint16_t lid) {
        name.process.lid = lid;
        return cache.find(name);
    };
    for (std::uint16_t lid = 1; lid <= PathCache::kMost; ++lid)
        ASSERT_NE(find(lid), nullptr);
    ibv_ah* const first = find(1);
    for (std::uint16_t lid = 5000; lid < 5100; ++lid)
        ASSERT_NE(find(lid), nullptr);
    EXPECT_EQ(cache.size(), PathCache::kMost);
    EXPECT_EQ(find(1), first) << "used lately";
}

// Signals of the program are its own threads' to take.
TEST(ConnectorThread, HasANameAndTakesNoSignals) {
    Peer a(true);
    unsigned found = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string word;
        std::getline(std::ifstream(task.path() / "comm") >> std::ws, word);
        if (word != "heddle-connect") continue;
        ++found;
        std::ifstream status(task.path() / "status");
        while (status >> word && word != "SigBlk:") {
        }
        status >> word;
        const std::uint64_t blocked = std::stoull(word, nullptr, 16);
        for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF})
            EXPECT_TRUE(blocked >> (signal - 1) & 1) << "signal " << signal;
    }
    EXPECT_EQ(found, 1u);
}

}  // namespace
}  // namespace heddle::protocol::test
