// SPDX-License-Identifier: BSD-2-Clause
// Send queues that grow: a connection begins with a few entries. When these are full, a deep queue
// is connected, and takes their place as soon as nothing is under way.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/transport/channel_limits.h"
#include "tests/protocol/connector_support.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using softhca::test::Child;

constexpr unsigned kReceives = 16, kDepth = 128;
constexpr std::uint64_t kReported = FI_COMPLETION | FI_TRANSMIT_COMPLETE;

using How = std::tuple<PostPath, Transport>;

Options growth_options(const How& how) {
    Options options;
    std::tie(options.post, options.transport) = how;
    options.receive_buffers = kReceives;
    options.receive_bytes = 0;  // no more of them after a burst
    options.send_depth = kDepth;
    options.timeouts.keepalive_s = 0;
    return options;
}

// Which QPs the device has no memory for. Any thread.
std::atomic<bool (*)(const ibv_qp_init_attr& wanted)> refuses{nullptr};
std::atomic<unsigned> refused{0};

bool is_refused(const ibv_qp_init_attr& wanted) {
    const auto is_one = refuses.load();
    if (is_one == nullptr || !is_one(wanted)) return false;
    ++refused;
    errno = ENOMEM;
    return true;
}

// Targets by XRC are made by this operation of the context, and all others by ibv_create_qp().
verbs_context* context_of(End& end) {
    return verbs_get_ctx(end.impl().channel->objects().shared().context.get());
}
decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;

class Refused {
public:
    Refused(End& end, bool (*which)(const ibv_qp_init_attr& wanted)) : context_(context_of(end)) {
        create_qp_ex = context_->create_qp_ex;
        refused = 0;
        refuses = which;
        context_->create_qp_ex = [](ibv_context* context, ibv_qp_init_attr_ex* wanted) {
            ibv_qp_init_attr plain{};
            plain.qp_type = wanted->qp_type;
            plain.cap = wanted->cap;
            return is_refused(plain) ? nullptr : create_qp_ex(context, wanted);
        };
    }
    ~Refused() {
        refuses = nullptr;
        context_->create_qp_ex = create_qp_ex;
    }
    Refused(const Refused&) = delete;
    Refused& operator=(const Refused&) = delete;

private:
    verbs_context* const context_;
};

// Until that does not change any more.
unsigned most_under_way_of(End& sender) {
    unsigned most = 0, before = 0, same = 0;
    until(
        [&] {
            const auto now = static_cast<unsigned>(sender.endpoint->state().under_way);
            same = now == before ? same + 1 : 0;
            before = now;
            most = std::max(most, now);
            return now != 0 && same == 100'000;
        },
        {&sender});
    return most;
}

class Growth : public testing::TestWithParam<How> {
protected:
    Growth() : sender(growth_options(GetParam())), receiver(growth_options(GetParam())) {
        to = sender.addresses.insert(receiver.endpoint->name());
    }
    unsigned under_way() const { return static_cast<unsigned>(sender.endpoint->state().under_way); }
    // Sends the next numbers.
    void send(unsigned messages) {
        for (unsigned i = 0; i < messages; ++i, ++sent) {
            const iovec bytes{&sent, sizeof sent};
            ASSERT_EQ(sender.send(to, bytes, FI_INJECT), 0);
        }
    }
    // All that were sent arrive, in their order.
    void receive() {
        std::vector<char> room(sizeof sent);
        for (; received != sent; ++received) {
            receiver.post(FI_ADDR_UNSPEC, room, this);
            ASSERT_TRUE(until([&] { return !receiver.receive.empty(); }, {&sender, &receiver}))
                << received << " of " << sent;
            ASSERT_EQ(receiver.receive.front().error, 0);
            receiver.receive.pop();
            std::uint64_t number = 0;
            std::memcpy(&number, room.data(), sizeof number);
            ASSERT_EQ(number, received);
        }
    }
    // The receiver makes no progress, so the device takes what it has receives for, and the rest of
    // a full queue stays under way.
    unsigned most_under_way() {
        send(kReceives + kDepth + kFewWorks);
        return most_under_way_of(sender);
    }
    // A deep one is asked for once, and everything arrives without it.
    void expect_short_queue() {
        for (int burst = 0; burst < 3; ++burst) {
            EXPECT_EQ(most_under_way(), kFewWorks);
            receive();
        }
        EXPECT_EQ(refused, 1U);
    }
    End sender, receiver;
    std::uint64_t to = 0, sent = 0, received = 0;
};

std::string name_of(const testing::TestParamInfo<How>& info) {
    return std::string(std::get<PostPath>(info.param) == PostPath::kVerbs ? "verbs" : "direct") +
           (std::get<Transport>(info.param) == Transport::kXrc ? "_xrc" : "_rc");
}
INSTANTIATE_TEST_SUITE_P(By, Growth,
                         testing::Combine(testing::Values(PostPath::kVerbs, PostPath::kDirect),
                                          testing::Values(Transport::kXrc, Transport::kRc)),
                         name_of);

TEST_P(Growth, FollowsTheFirstBurst) {
    send(1);
    receive();
    // Fewer if the deep one is there so soon that nothing more is posted.
    EXPECT_LE(most_under_way(), kFewWorks);
    EXPECT_EQ(sender.depth_to(to), kFewWorks);
    receive();
    EXPECT_GT(most_under_way(), kDepth - kReceives);
    EXPECT_LE(under_way(), kDepth);
    receive();
}

TEST_P(Growth, IsNotNeeded) {
    send(1);
    receive();
    const Refused deep(sender,
                       [](const ibv_qp_init_attr& wanted) { return wanted.cap.max_send_wr > 1; });
    expect_short_queue();
}

TEST_P(Growth, IsNotNeededWhereThePeerRefuses) {
    send(1);
    receive();
    const Refused targets(receiver, [](const ibv_qp_init_attr& wanted) {
        return wanted.qp_type == IBV_QPT_XRC_RECV || wanted.cap.max_send_wr <= 1;
    });
    expect_short_queue();
}

// While the deep queue is connected, and waits for what is under way.
TEST(GrowthOfAQueue, EndsWithThePeer) {
    for (const Transport transport : {Transport::kXrc, Transport::kRc}) {
        const Options options = growth_options({PostPath::kAuto, transport});
        Child dying([&](softhca::test::Channel& channel) {
            const End end(options);
            channel.send(end.endpoint->name());
            channel.meet();
        });
        End sender(options);
        const auto to = sender.addresses.insert(dying.channel().receive<EndpointAddress>());
        const auto under_way = [&] { return sender.endpoint->state().under_way; };
        constexpr unsigned kMessages = kReceives + kDepth + kFewWorks;
        const std::uint64_t number = 0;
        const iovec bytes{const_cast<std::uint64_t*>(&number), sizeof number};
        for (unsigned i = 0; i < kMessages; ++i)
            ASSERT_EQ(sender.send(to, bytes, kReported), 0);
        EXPECT_LE(most_under_way_of(sender), kFewWorks);
        dying.kill(SIGKILL);
        dying.wait();
        unsigned ended = 0, lost = 0;
        EXPECT_TRUE(until(
            [&] {
                for (; !sender.transmit.empty(); sender.transmit.pop(), ++ended)
                    lost += sender.transmit.front().error != 0;
                return ended == kMessages && under_way() == 0;
            },
            {&sender}))
            << ended << ", " << under_way() << " under way";
        EXPECT_GE(lost, kMessages - kReceives);
    }
}

}  // namespace
}  // namespace heddle::protocol::test

// Stands before libibverbs' function of that name.
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
    static const auto original =
        reinterpret_cast<decltype(&ibv_create_qp)>(dlsym(RTLD_NEXT, "ibv_create_qp"));
    return heddle::protocol::test::is_refused(*wanted) ? nullptr : original(pd, wanted);
}
