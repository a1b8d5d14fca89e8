// SPDX-License-Identifier: BSD-2-Clause
// Rendezvous that the receiver's processor reads: what the sender announces, and how a message ends
// when it has been read, when it cannot be, and when its peer fails. A process reads its own
// memory.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/rndv/rendezvous.h"
#include "protocol/shm/process_memory.h"
#include "protocol/tag/receive.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"
#include "tests/unit/protocol_shm_support.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kLongMessage = 3 << 20;  // takes several reads

class ByProcess : public ::testing::Test, public RendezvousUser {
protected:
    explicit ByProcess(Rendezvous way = Rendezvous::kGet) : core_(options(way)) {
        core_.connect(peer_);
        peer_.shm = &ring_;
        peer_.memory = &memory_;
        ring_memory_.control().state.reads = 1;
    }
    ~ByProcess() override {
        EXPECT_EQ(requests_.open(), 0u);
        EXPECT_EQ(fake_verbs::regions(), regions_before_) << "memory was registered";
    }
    static Options options(Rendezvous way) {
        Options options;
        options.rendezvous = way;
        return options;
    }
    void on_fetched(Receive&, Peer&, const AnnouncedMessage& message, std::size_t taken, int error,
                    int) override {
        fetched_.push_back({message.operation, taken, error});
    }
    void send() {
        SendRequest& request = requests_.take(peer_, rendezvous_);
        request.bytes = text_.size();
        request.report.what = WrContext::kEntry;
        const iovec buffer{text_.data(), text_.size()};
        request.set_buffers(&buffer, 1, nullptr);
        requests_.start(request);
    }
    void fetch(std::uint64_t operation, const std::string& from, std::string& to) {
        const AnnouncedMessage message{{7, 0, false}, operation, false, from.size(), true};
        const iovec buffer{to.data(), to.size()};
        const Segment segment{{reinterpret_cast<std::uintptr_t>(from.data()), from.size(), 0, 0}};
        rendezvous_.fetch(receive_, {&buffer, 1}, to.size(), peer_, message, {&segment, 1});
    }
    struct Fetched {
        std::uint64_t operation;
        std::size_t taken;
        int error;
        bool operator==(const Fetched&) const = default;
    };
    std::vector<Fetched> fetched_;
    RingMemory ring_memory_{kSmallRing};
    ShmSender ring_{ring_memory_.at(), kSmallRing, false};
    ProcessMemory memory_{static_cast<std::uint32_t>(getpid()), ProcessMemory::own_word_address(),
                          ProcessMemory::own_word(), ring_memory_.control()};
    FakeCore core_;
    memory::Pool send_buffers_{nullptr, 64, 1};
    const std::size_t regions_before_ = fake_verbs::regions();
    RequestPool requests_{core_, send_buffers_};
    RendezvousProtocol rendezvous_{core_, requests_, *this};
    Receive receive_;
    Peer& peer_ = core_.add_peer();
    std::string text_ = std::string(50, 'x'), room_ = std::string(60, '.');
};

class ByProcessOrPut : public ByProcess {
protected:
    ByProcessOrPut() : ByProcess(Rendezvous::kPut) {}
};

TEST_F(ByProcess, TheSenderAnnouncesMemoryWithoutKeys) {
    send();
    const Message rts = core_.sent.at(0).message();
    EXPECT_EQ(rts.rts.flags, RtsBody::kByProcess);
    ASSERT_EQ(rts.rts.segments, 1u);
    EXPECT_EQ(rts.segments[0].address, reinterpret_cast<std::uintptr_t>(text_.data()));
    EXPECT_EQ(rts.segments[0].key, 0u);
    Message fin;
    fin.header.kind = Kind::kFin;
    fin.fin = {rts.rts.operation, 0, 0};
    rendezvous_.on_message(peer_, fin);
    ASSERT_EQ(core_.transmitted.size(), 1u);
    EXPECT_EQ(core_.transmitted.front().error, 0);
}

TEST_F(ByProcess, TheDeviceReadsWhereTheProcessMayNot) {
    ring_memory_.control().state.reads = 0;
    SendRequest& request = requests_.take(peer_, rendezvous_);
    request.bytes = text_.size();
    const iovec buffer{text_.data(), text_.size()};
    request.set_buffers(&buffer, 1, nullptr);
    requests_.start(request);
    const Message rts = core_.sent.at(0).message();
    EXPECT_EQ(rts.rts.flags, 0u);
    EXPECT_NE(fake_verbs::regions(), regions_before_);
    requests_.finish(request, 0, 0);
}

// Also where the sender would write otherwise: then a request to write is an error.
TEST_F(ByProcessOrPut, TheReceiverReads) {
    send();
    const Message rts = core_.sent.at(0).message();
    EXPECT_EQ(rts.header.flags & Header::kPut, 0);
    EXPECT_EQ(rts.rts.flags, RtsBody::kByProcess);
    Message cts;
    cts.header.kind = Kind::kCts;
    cts.cts = {rts.rts.operation, 9, 50, 1, 0};
    cts.segments[0] = {{4096, 50, 9, 0}};
    rendezvous_.on_message(peer_, cts);
    EXPECT_EQ(core_.counts.protocol_errors, 1u);
    EXPECT_TRUE(core_.transfers.empty());
    requests_.for_each([&](SendRequest& request) { requests_.finish(request, EPROTO, 0); });
}

TEST_F(ByProcess, AMessageIsReadByTheNextProgress) {
    fetch(41, text_, room_);
    EXPECT_TRUE(fetched_.empty());
    ASSERT_TRUE(rendezvous_.is_reading());
    rendezvous_.read_from_processes();
    EXPECT_EQ(fetched_, (std::vector<Fetched>{{41, 50, 0}}));
    EXPECT_EQ(room_, text_ + std::string(10, '.'));
    EXPECT_FALSE(rendezvous_.is_reading());
    ASSERT_EQ(core_.sent.size(), 1u);
    EXPECT_EQ(core_.sent[0].kind, Kind::kFin);
    EXPECT_EQ(core_.sent[0].body<FinBody>().operation, 41u);
    EXPECT_EQ(core_.sent[0].body<FinBody>().status, 0u);
    EXPECT_EQ(core_.counts.shm.read, 1u);
}

TEST_F(ByProcess, AShortReceiveGetsAPart) {
    std::string room(20, '.');
    fetch(41, text_, room);
    rendezvous_.read_from_processes();
    EXPECT_EQ(fetched_, (std::vector<Fetched>{{41, 20, 0}}));
    EXPECT_EQ(room, text_.substr(0, 20));
}

TEST_F(ByProcess, LongMessagesTakeTurns) {
    const std::string first(kLongMessage, 'a'), second(kLongMessage, 'b');
    std::string to_first(kLongMessage, '.'), to_second(kLongMessage, '.');
    fetch(1, first, to_first);
    fetch(2, second, to_second);
    fetch(3, text_, room_);
    unsigned looks = 0;
    for (; rendezvous_.is_reading(); ++looks)
        rendezvous_.read_from_processes();
    EXPECT_GE(looks, 6u);
    ASSERT_EQ(fetched_.size(), 3u);
    EXPECT_EQ(fetched_[0], (Fetched{3, 50, 0})) << "the short one does not wait for the others";
    EXPECT_EQ(to_first, first);
    EXPECT_EQ(to_second, second);
}

TEST_F(ByProcess, AnInvalidAddressEndsOneMessage) {
    const AnnouncedMessage message{{7, 0, false}, 41, false, 50, true};
    const iovec buffer{room_.data(), room_.size()};
    const Segment segment{{8, 50, 0, 0}};
    rendezvous_.fetch(receive_, {&buffer, 1}, room_.size(), peer_, message, {&segment, 1});
    fetch(42, text_, room_);
    while (rendezvous_.is_reading())
        rendezvous_.read_from_processes();
    EXPECT_EQ(fetched_, (std::vector<Fetched>{{41, 0, EFAULT}, {42, 50, 0}}));
    EXPECT_EQ(core_.sent.at(0).body<FinBody>().status, static_cast<std::uint32_t>(EFAULT));
}

TEST_F(ByProcess, APeerThatHasGivenUpItsMemoryEndsThem) {
    fetch(41, text_, room_);
    ring_.close();
    rendezvous_.read_from_processes();
    EXPECT_EQ(fetched_, (std::vector<Fetched>{{41, 0, ECONNRESET}}));
}

TEST_F(ByProcess, APeerThatFailsEndsThem) {
    fetch(41, text_, room_);
    fetch(42, text_, room_);
    core_.fail_peer(peer_, EHOSTUNREACH);
    peer_.memory = nullptr;
    rendezvous_.on_peer_failed(peer_, EHOSTUNREACH);
    EXPECT_FALSE(rendezvous_.is_reading());
    EXPECT_EQ(fetched_, (std::vector<Fetched>{{41, 0, EHOSTUNREACH}, {42, 0, EHOSTUNREACH}}));
    fetch(43, text_, room_);
    EXPECT_FALSE(rendezvous_.is_reading());
    EXPECT_EQ(fetched_.back(), (Fetched{43, 0, EHOSTUNREACH}));
}

}  // namespace
}  // namespace heddle::protocol::test
