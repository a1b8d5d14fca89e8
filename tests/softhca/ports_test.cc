// SPDX-License-Identifier: BSD-2-Clause
// Ports that change while programs use them (variants softhca.two.* and softhca.two_roce.*):
// events, what is reported, and what becomes of messages meanwhile.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <fstream>

#include "port_side.h"
#include "segment_file.h"
#include "softhca/device/port_change.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

class Ports : public SeveralPorts {
protected:
    void SetUp() override {
        SeveralPorts::SetUp();
        if (!IsSkipped()) segment_ = std::make_unique<SegmentFile>();
    }
    void TearDown() override {
        if (!segment_) return;
        for (unsigned i = 0; i < 4; ++i)
            device::set_link(**segment_, i, true);
        device::announce_port_changes(**segment_);
    }
    // The port of that side goes down or comes up, as by `softhca port`.
    void set_link(unsigned device, unsigned port, bool is_up) {
        const unsigned index = 2 * device + port - 1;
        EXPECT_EQ(device::set_link(**segment_, index, is_up), device::PortChange::kDone);
        device::announce_port_changes(**segment_);
    }
    device::Segment& segment() { return **segment_; }

    std::unique_ptr<SegmentFile> segment_;
};

// The next event of the context, or -1 if none comes in time.
int next_event(ibv_context* context, int* port, milliseconds within = milliseconds(5000)) {
    pollfd waited{context->async_fd, POLLIN, 0};
    if (::poll(&waited, 1, static_cast<int>(within.count())) != 1) return -1;
    ibv_async_event event{};
    if (ibv_get_async_event(context, &event) != 0) return -1;
    *port = event.element.port_num;
    ibv_ack_async_event(&event);
    return event.event_type;
}

TEST_F(Ports, EachContextOfTheDeviceGetsTheEvents) {
    const Owned<ibv_context> one = open_device_number(1), two = open_device_number(1);
    const Owned<ibv_context> other = open_device_number(0);
    set_link(1, 2, false);
    set_link(1, 2, true);
    for (ibv_context* context : {one.get(), two.get()}) {
        int port = 0;
        EXPECT_EQ(next_event(context, &port), IBV_EVENT_PORT_ERR);
        EXPECT_EQ(port, 2);
        EXPECT_EQ(next_event(context, &port), IBV_EVENT_PORT_ACTIVE);
        EXPECT_EQ(port, 2);
        EXPECT_EQ(next_event(context, &port, milliseconds(20)), -1);
    }
    int port = 0;
    EXPECT_EQ(next_event(other.get(), &port, milliseconds(20)), -1);
    const Owned<ibv_context> late = open_device_number(1);
    EXPECT_EQ(next_event(late.get(), &port, milliseconds(200)), -1) << "it was before its time";
}

TEST_F(Ports, AQueryShowsTheState) {
    const Owned<ibv_context> context = open_device_number(0);
    set_link(0, 1, false);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    EXPECT_EQ(port.phys_state, is_ethernet(context.get()) ? 3 : 2);
    ASSERT_EQ(ibv_query_port(context.get(), 2, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    set_link(0, 1, true);
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.phys_state, 5);
    EXPECT_EQ(device::set_link(segment(), 0, true), device::PortChange::kNothingToDo);
}

// 4.096 us << 12, four times: 67 ms.
TEST_F(Ports, RequestsFailAfterTheirRetries) {
    for (const bool own : {true, false}) {
        const PortSide a(0, 1), b(1, 1);
        a.connect(b);
        b.connect(a);
        ASSERT_TRUE(reaches(a, b));
        for (std::uint64_t id = 0; id < 8; ++id)
            b.post_receive();
        set_link(own ? 0 : 1, 1, false);
        const auto begin = Clock::now();
        for (std::uint64_t id = 10; id < 14; ++id)
            a.post_send(id);
        const ibv_wc first = a.poll();
        EXPECT_EQ(first.status, IBV_WC_RETRY_EXC_ERR);
        EXPECT_EQ(first.wr_id, 10U);
        EXPECT_GE(Clock::now() - begin, milliseconds(60));
        EXPECT_LT(Clock::now() - begin, milliseconds(5000));
        for (std::uint64_t id = 11; id < 14; ++id) {
            const ibv_wc flushed = a.poll();
            EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
            EXPECT_EQ(flushed.wr_id, id);
        }
        EXPECT_EQ(b.poll(milliseconds(20)).wr_id, ~0ull);
        set_link(own ? 0 : 1, 1, true);
    }
}

TEST_F(Ports, NothingIsLostIfTheLinkComesBackInTime) {
    const PortSide a(0, 1, {IBV_QPT_RC, 14, 7}), b(1, 2, {IBV_QPT_RC, 14, 7});
    a.connect(b);
    b.connect(a);
    constexpr std::uint64_t kMessages = 32;
    for (std::uint64_t id = 0; id < kMessages; ++id)
        b.post_receive(id);
    for (std::uint64_t id = 0; id < kMessages; ++id) {
        if (id == 8) set_link(1, 2, false);
        a.post_send(id);
    }
    EXPECT_NE(b.poll().wr_id, ~0ull);
    std::this_thread::sleep_for(milliseconds(100));
    set_link(1, 2, true);
    for (std::uint64_t id = 0; id < kMessages; ++id) {
        const ibv_wc sent = a.poll();
        ASSERT_EQ(sent.status, IBV_WC_SUCCESS);
        EXPECT_EQ(sent.wr_id, id);
    }
    for (std::uint64_t id = 1; id < kMessages; ++id) {
        const ibv_wc received = b.poll();
        ASSERT_EQ(received.status, IBV_WC_SUCCESS);
        EXPECT_EQ(received.wr_id, id);
    }
}

TEST_F(Ports, OtherPortsGoOn) {
    const PortSide a(0, 2), b(1, 1);
    a.connect(b);
    b.connect(a);
    set_link(0, 1, false);
    set_link(1, 2, false);
    EXPECT_TRUE(reaches(a, b));
    EXPECT_TRUE(reaches(b, a));
}

TEST_F(Ports, DatagramsAndUcMessagesAreLost) {
    for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC}) {
        const PortSide a(0, 1, {type}), b(1, 1, {type});
        a.connect(b);
        b.connect(a);
        ibv_ah_attr path = a.path_to(b);
        const Owned<ibv_ah> ah(check(ibv_create_ah(a.pd.get(), &path), "ibv_create_ah"));
        ibv_ah* const to = type == IBV_QPT_UD ? ah.get() : nullptr;
        b.post_receive(1);
        set_link(1, 1, false);
        a.post_send(2, 64, to, b.qp->qp_num);
        EXPECT_EQ(a.poll().status, IBV_WC_SUCCESS);
        EXPECT_EQ(b.poll(milliseconds(100)).wr_id, ~0ull);
        set_link(1, 1, true);
        a.post_send(3, 64, to, b.qp->qp_num);
        EXPECT_EQ(a.poll().status, IBV_WC_SUCCESS);
        EXPECT_EQ(b.poll().status, IBV_WC_SUCCESS);
    }
}

class Gids : public Ports {
protected:
    void SetUp() override {
        Ports::SetUp();
        if (!IsSkipped() && !is_ethernet(open_device().get()))
            GTEST_SKIP() << "the GIDs of InfiniBand ports do not change";
    }
};

TEST_F(Gids, ComeAndGoWithEvents) {
    const device::IpAddress address = device::ipv4_address(0x0a63'0001);
    const PortSide a(0, 1), b(1, 1);
    ASSERT_EQ(device::add_address(segment(), 2, address), device::PortChange::kDone);
    EXPECT_EQ(device::add_address(segment(), 2, address), device::PortChange::kNothingToDo);
    EXPECT_EQ(device::add_address(segment(), 0, address), device::PortChange::kTaken);
    device::announce_port_changes(segment());
    int port = 0;
    EXPECT_EQ(next_event(b.context.get(), &port), IBV_EVENT_GID_CHANGE) << "of v1";
    EXPECT_EQ(next_event(b.context.get(), &port), IBV_EVENT_GID_CHANGE) << "of v2";
    EXPECT_EQ(port, 1);
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(b.context.get(), 1, 5, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    // A connection by the new address outlives it.
    ibv_ah_attr there = a.path_to(b), back = b.path_to(a);
    there.grh.dgid = entry.gid;
    back.grh.sgid_index = 5;
    a.connect(b, there);
    b.connect(a, back);
    EXPECT_TRUE(reaches(a, b));
    ASSERT_EQ(device::remove_address(segment(), 2, address), device::PortChange::kDone);
    EXPECT_EQ(device::remove_address(segment(), 2, address), device::PortChange::kNothingToDo);
    device::announce_port_changes(segment());
    EXPECT_EQ(next_event(b.context.get(), &port), IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(ibv_query_gid_ex(b.context.get(), 1, 5, &entry, 0), ENODATA);
    EXPECT_TRUE(reaches(a, b));
    EXPECT_TRUE(reaches(b, a));
    const PortSide c(1, 1);
    require(c.to_init(1), "INIT");
    EXPECT_EQ(c.to_ready_to_receive(a.qp->qp_num, back), EINVAL) << "the entry is empty";
}

TEST_F(Gids, TheTableHasAnEnd) {
    EXPECT_EQ(device::add_address(segment(), 1, device::ipv4_address(1)),
              device::PortChange::kDone);
    EXPECT_EQ(device::add_address(segment(), 1, device::ipv4_address(2)),
              device::PortChange::kDone);
    EXPECT_EQ(device::add_address(segment(), 1, device::ipv4_address(3)),
              device::PortChange::kNoRoom);
    EXPECT_EQ(device::remove_address(segment(), 1, device::ipv4_address(1)),
              device::PortChange::kDone);
    EXPECT_EQ(device::remove_address(segment(), 1, device::ipv4_address(2)),
              device::PortChange::kDone);
}

}  // namespace
}  // namespace softhca::test
