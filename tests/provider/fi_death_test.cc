// SPDX-License-Identifier: BSD-2-Clause
// An operation that waits for a peer ends with an error when the peer can no longer answer: its
// process was killed, or its process lives but closed the endpoint, or its connection to us failed.
#include <set>
#include <vector>

#include "tests/provider/fi_death.h"

namespace heddle::test {
namespace {

// A message of tag 1 is there, and stays.
bool has_come(Station& station) {
    fi_msg_tagged probe{};
    probe.addr = FI_ADDR_UNSPEC;
    probe.tag = 1;
    fi_cq_tagged_entry entry;
    return fi_trecvmsg(station.ep.get(), &probe, FI_PEEK) == 0 &&
           next(station.receive.get(), entry) == 0;
}

// Sees that a message came, takes it not, and is killed.
int receiver(Board& board) {
    World world;
    Station station(world);
    station.enable();
    put_name(board, station);
    const bool found = wait_for([&] { return has_come(station); });
    board.arrived = found;
    while (found)
        pause();
    return 1;
}

// The next entry of the transmit queue: its error, or 0; asleep until it comes, or polling.
int next_sent(Station& station, bool asleep) {
    fi_cq_tagged_entry entry;
    if (!asleep) return next(station.transmit.get(), entry);
    const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
    const ssize_t got = fi_cq_sread(station.transmit.get(), &entry, 1, nullptr, patience);
    if (got == 1) return 0;
    return got == -FI_EAGAIN ? FI_ETIMEDOUT : next(station.transmit.get(), entry);
}

// The message's request is delivered, and asked for no completion: nothing of this side is under
// way when the peer dies.
template <bool kAsleep>
int sender(Board& board) {
    Survivor survivor(board, kAsleep ? FI_WAIT_FD : FI_WAIT_NONE);
    auto& [world, station, to] = survivor;
    if (to == FI_ADDR_NOTAVAIL) return 1;
    const std::vector<char> large(100'000);
    const auto send = [&] {
        return fi_tsend(station.ep.get(), large.data(), large.size(), nullptr, to, 1, nullptr);
    };
    if (insist(station.transmit.get(), send) != 0) return 1;
    board.error = next_sent(station, kAsleep);
    return 0;
}

TEST_F(Death, SenderOfAWaitingMessageIsTold) {
    run(receiver, sender<false>);
    expect_told();
}

TEST_F(Death, SenderThatSleepsIsTold) {
    run(receiver, sender<true>);
    expect_told();
}

// Works that asked for no completion get one when they fail: they must not count as those that did,
// of which there may be so many at once.
int injector(Board& board) {
    World world;
    Station station(world), other(world);
    station.enable();
    other.enable();
    const fi_addr_t to = address_on(board, station);
    if (to == FI_ADDR_NOTAVAIL) return 1;
    const fi_addr_t to_other = station.add(other);
    const std::uint64_t value = 1;
    fid_ep* const ep = station.ep.get();
    const auto inject = [&] { return fi_tinject(ep, &value, sizeof value, to, 1); };
    const auto send = [&](fi_addr_t address) {
        return [=, &value] {
            const iovec piece{const_cast<std::uint64_t*>(&value), sizeof value};
            const fi_msg_tagged message{&piece, nullptr, 1, address, 1, 0, nullptr, 0};
            return fi_tsendmsg(ep, &message, FI_COMPLETION | FI_TRANSMIT_COMPLETE);
        };
    };
    fi_cq_tagged_entry entry;
    if (insist(station.transmit.get(), inject) != 0 || !wait_for([&] {
            fi_cq_read(station.transmit.get(), &entry, 0);
            return board.gone.load();
        }))
        return 1;
    // Until the device has noticed.
    ssize_t unsent = 0;
    const bool noticed = wait_for([&] {
        for (int i = 0; i < 25 && unsent == 0; ++i)
            unsent = insist(station.transmit.get(), inject);
        if (unsent == 0) unsent = insist(station.transmit.get(), send(to));
        if (unsent == 0) board.error = next(station.transmit.get(), entry);
        return unsent != 0 || board.error != 0;
    });
    if (!noticed || unsent != 0) return 2;
    // Each of those that were lost with it has an entry: they come before the next of another.
    const auto next_to_other = [&] {
        int error = ECONNABORTED;
        while (error == ECONNABORTED)
            error = next(station.transmit.get(), entry, other.receive.get());
        return error;
    };
    std::uint64_t received = 0;
    for (int i = 0; i < 100; ++i) {
        if (fi_trecv(other.ep.get(), &received, sizeof received, nullptr, FI_ADDR_UNSPEC, 1, 0,
                     nullptr) != 0 ||
            insist(station.transmit.get(), send(to_other)) != 0 || next_to_other() != 0 ||
            next(other.receive.get(), entry, station.transmit.get()) != 0)
            return 4;
    }
    return 0;
}

TEST_F(Death, LeavesRoomForMessagesToOthers) {
    run(receiver, injector);
    expect_told();
}

constexpr unsigned kReceiveRoom = 32, kInjected = 60;

// Takes as many messages as its queue has room for, and is killed.
int full_receiver(Board& board) {
    setenv("FI_HEDDLE_RECEIVE_BUFFERS", std::to_string(kReceiveRoom).c_str(), 1);
    setenv("FI_HEDDLE_RECEIVE_MEMORY", "0", 1);
    World world;
    Station station(world);
    station.enable();
    put_name(board, station);
    while (wait_for([&] { return board.arrived.load(); }))
        pause();
    return 1;
}

// They are at the device when the peer dies, and asked for no completion.
int injector_of_many(Board& board) {
    Survivor survivor(board);
    auto& [world, station, to] = survivor;
    if (to == FI_ADDR_NOTAVAIL) return 1;
    const std::uint64_t value = 1;
    fid_ep* const ep = station.ep.get();
    const auto send = [&] { return fi_tsend(ep, &value, sizeof value, nullptr, to, 2, nullptr); };
    fi_cq_tagged_entry entry;
    if (insist(station.transmit.get(), send) != 0 || next(station.transmit.get(), entry) != 0)
        return 1;
    for (unsigned i = 0; i < kInjected; ++i)
        if (fi_tinject(ep, &value, sizeof value, to, 2) != 0) return 2;
    board.arrived = true;
    // The queue keeps an entry for itself on the direct path.
    unsigned lost = 0;
    while (lost < 1 + kInjected - kReceiveRoom) {
        board.error = next(station.transmit.get(), entry);
        if (board.error != EHOSTUNREACH && board.error != ECONNABORTED) return 3;
        ++lost;
    }
    fi_cq_err_entry error{};
    for (int i = 0; i < 1000; ++i)
        if (fi_cq_read(station.transmit.get(), &entry, 1) == -FI_EAVAIL)
            lost += fi_cq_readerr(station.transmit.get(), &error, 0) == 1;
    return lost <= 2 + kInjected - kReceiveRoom ? 0 : 4;
}

TEST_F(Death, EachInjectedMessageThatIsLostHasAnEntry) {
    run(full_receiver, injector_of_many);
    expect_told();
}

// Messages with an entry each: of 8, 60, 900 and 20000 bytes. Those that have been reported are
// not a second time when the peer dies. So each error has the context of a send without an entry.
int sender_of_many(Board& board) {
    Survivor survivor(board);
    auto& [world, station, to] = survivor;
    if (to == FI_ADDR_NOTAVAIL) return 1;
    constexpr std::size_t kSizes[] = {8, 60, 900, 20000};
    const std::vector<char> bytes(kSizes[3]);
    std::set<const void*> open;
    std::vector<char> contexts(4000);
    std::size_t begun = 0;
    bool failed = false;
    // Returns 0 while all goes well, or what is wrong.
    const auto look = [&] {
        fi_cq_tagged_entry entry;
        fi_cq_err_entry error{};
        for (;;) {
            const ssize_t got = fi_cq_read(station.transmit.get(), &entry, 1);
            if (got == -FI_EAGAIN) return 0;
            if (got == 1) {
                if (open.erase(entry.op_context) != 1) return 2;
                continue;
            }
            if (fi_cq_readerr(station.transmit.get(), &error, 0) != 1) return 3;
            board.error = error.err;
            failed = true;
            if (open.erase(error.op_context) != 1) return 4;
        }
    };
    const bool ended = wait_for([&] {
        if (begun == contexts.size() || failed) return true;
        void* const context = &contexts[begun];
        const ssize_t sent =
            fi_tsend(station.ep.get(), bytes.data(), kSizes[begun % 4], nullptr, to, 2, context);
        if (sent == 0) {
            open.insert(context);
            ++begun;
        }
        // The first is reported once there is a connection. Otherwise a peer could be killed before
        // it has answered, which takes FI_HEDDLE_CONNECT_TIMEOUT.
        if (begun > kReceiveRoom && open.size() < begun) board.arrived = true;
        failed |= sent != 0 && sent != -FI_EAGAIN;
        return look() != 0;
    });
    if (!ended || !failed) return 5;
    const bool all = wait_for([&] { return look() != 0 || open.empty(); });
    return all && open.empty() && look() == 0 ? 0 : 6;
}

TEST_F(Death, NoMessageIsReportedTwice) { run(full_receiver, sender_of_many); }

// Sends one message, and is killed after the receiver has it.
int talker(Board& board) {
    Survivor survivor(board);
    auto& [world, station, to] = survivor;
    if (to == FI_ADDR_NOTAVAIL) return 1;
    std::memcpy(board.other, station.name, kNameBytes);
    board.other_named = true;
    fi_cq_tagged_entry entry;
    const auto send = [&] { return fi_tsend(station.ep.get(), "", 0, nullptr, to, 1, nullptr); };
    if (insist(station.transmit.get(), send) != 0 || next(station.transmit.get(), entry) != 0)
        return 1;
    for (;;)
        pause();
}

// Waits for another message of that peer, to which it has never sent anything itself. It has one
// more receive, from any source, which others could still satisfy.
template <bool kAsleep>
int listener(Board& board) {
    setenv("FI_HEDDLE_KEEPALIVE", "1", 1);
    World world;
    Station station(world, kAsleep ? FI_WAIT_FD : FI_WAIT_NONE);
    station.enable();
    put_name(board, station);
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    if (!wait_for([&] { return board.other_named.load(); }) ||
        fi_av_insert(station.av.get(), board.other, 1, &from, 0, nullptr) != 1)
        return 1;
    fid_ep* const ep = station.ep.get();
    fid_cq* const cq = station.receive.get();
    char room[8];
    fi_cq_tagged_entry entry;
    const auto post = [&](fi_addr_t source, std::uint64_t tag, void* context) {
        return fi_trecv(ep, room, sizeof room, nullptr, source, tag, 0, context) == 0;
    };
    int first = 0, expected = 0, any = 0;
    if (!post(from, 1, &first) || next(cq, entry) != 0) return 1;
    if (!post(FI_ADDR_UNSPEC, 3, &any) || !post(from, 2, &expected)) return 1;
    // Longer than an interval: a peer that lives is not taken for dead.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (std::chrono::steady_clock::now() < end)
        if ((kAsleep ? fi_cq_sread(cq, &entry, 1, nullptr, 500) : fi_cq_read(cq, &entry, 1)) !=
            -FI_EAGAIN)
            return 2;
    board.arrived = true;
    const auto ended = [&](void* context) {
        const int patience = static_cast<int>(std::chrono::milliseconds(kPatience).count());
        if (kAsleep && fi_cq_sread(cq, &entry, 1, nullptr, patience) != -FI_EAVAIL) return false;
        fi_cq_err_entry error{};
        if (!wait_for([&] {
                fi_cq_read(cq, &entry, 0);
                return fi_cq_readerr(cq, &error, 0) == 1;
            }))
            return false;
        board.error = error.err;
        return error.op_context == context;
    };
    if (!ended(&expected) || board.error != ECONNRESET) return 3;
    // It is not waited for any more.
    int late = 0;
    if (!post(from, 2, &late) || !ended(&late) || board.error != ECONNRESET) return 4;
    return fi_cancel(&ep->fid, &any) == 0 && ended(&any) ? 0 : 5;
}

TEST_F(Death, ReceiverOfNothingMoreIsTold) {
    run(talker, listener<false>);
    EXPECT_EQ(board->error.load(), ECANCELED);  // of the last: ECONNRESET was checked before
}

TEST_F(Death, ReceiverThatSleepsIsTold) {
    run(talker, listener<true>);
    EXPECT_EQ(board->error.load(), ECANCELED);
}

// A message by rendezvous from a to b, of two domains: b has seen its request and has not taken it.
class Unanswered : public testing::TestWithParam<bool> {
protected:
    Unanswered()
        : a_(world_a_, asleep() ? FI_WAIT_FD : FI_WAIT_NONE),
          b_(std::make_unique<Station>(world_b_)) {
        a_.enable();
        b_->enable();
        to_b_ = a_.add(*b_);
        large_.resize(100'000);
    }
    static bool asleep() { return GetParam(); }
    void send(void* descriptor = nullptr) {
        ASSERT_EQ(insist(a_.transmit.get(),
                         [&] {
                             return fi_tsend(a_.ep.get(), large_.data(), large_.size(), descriptor,
                                             to_b_, 1, nullptr);
                         }),
                  0);
        ASSERT_TRUE(wait_for([&] {
            fi_cq_read(a_.transmit.get(), nullptr, 0);
            return has_come(*b_);
        }));
    }
    World world_a_, world_b_;
    Station a_;
    std::unique_ptr<Station> b_;
    fi_addr_t to_b_ = FI_ADDR_UNSPEC;
    std::vector<char> large_;
};

// b has said something to a, so that there is a way from it, before it is closed.
TEST_P(Unanswered, ByAnEndpointThatIsClosed) {
    const fi_addr_t to_a = b_->add(a_);
    ASSERT_EQ(insist(b_->transmit.get(), [&] { return fi_tinject(b_->ep.get(), "", 0, to_a, 9); }),
              0);
    send();
    b_.reset();
    const int reported = next_sent(a_, asleep());  // the device may notice first
    EXPECT_TRUE(reported == FI_ECONNRESET || reported == FI_EREMOTEIO) << fi_strerror(reported);
}

// Another endpoint of b's domain, which has never sent anything, is not taken for it.
TEST_P(Unanswered, ByAnotherThanTheOneThatIsClosed) {
    auto other = std::make_unique<Station>(world_b_);
    other->enable();
    const fi_addr_t to_a = other->add(a_);
    ASSERT_EQ(
        insist(other->transmit.get(), [&] { return fi_tinject(other->ep.get(), "", 0, to_a, 9); }),
        0);
    send();
    other.reset();
    // Longer than it takes to see that it is gone.
    fi_cq_tagged_entry entry;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    while (std::chrono::steady_clock::now() < end)
        ASSERT_EQ(asleep() ? fi_cq_sread(a_.transmit.get(), &entry, 1, nullptr, 1500)
                           : fi_cq_read(a_.transmit.get(), &entry, 1),
                  -FI_EAGAIN);
    std::vector<char> into(large_.size());
    ASSERT_EQ(
        fi_trecv(b_->ep.get(), into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
        0);
    EXPECT_EQ(next(b_->receive.get(), entry), 0);
    EXPECT_EQ(next_sent(a_, asleep()), 0);
}

// b's read fails: the program has ended the registration it sends from.
TEST_P(Unanswered, ByOneWhoseReadFailed) {
    fid_mr* region = nullptr;
    ASSERT_EQ(fi_mr_reg(world_a_.domain.get(), large_.data(), large_.size(), FI_SEND, 0, 0, 0,
                        &region, nullptr),
              0);
    send(fi_mr_desc(region));
    ASSERT_EQ(fi_close(&region->fid), 0);
    std::vector<char> into(large_.size());
    ASSERT_EQ(
        fi_trecv(b_->ep.get(), into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
        0);
    fi_cq_tagged_entry entry;
    EXPECT_NE(next(b_->receive.get(), entry), 0);
    EXPECT_EQ(next_sent(a_, asleep()), FI_ECONNRESET);
}

INSTANTIATE_TEST_SUITE_P(By, Unanswered, testing::Bool(),
                         [](const auto& each) { return each.param ? "asleep" : "polling"; });

}  // namespace
}  // namespace heddle::test
