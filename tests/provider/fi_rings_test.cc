// SPDX-License-Identifier: BSD-2-Clause
// Eager messages that are written into rings (protocol/ring/eager_ring.h). Tests: which senders get
// a ring; what happens when it is full; that a reader that sleeps has none; and that messages stay
// in order, whether they come by ring or by SEND.
#include <array>
#include <atomic>
#include <thread>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kRingRoom = 4096;
constexpr int kMany = 200;  // more than it takes to get a ring, and than are in one

class Rings : public testing::Test {
protected:
    struct Talker {
        Talker() : station(world) { station.enable(); }
        World world;
        Station station;
        fi_addr_t to_us = FI_ADDR_UNSPEC;
        int sent = 0;
    };

    Rings() {
        setenv("FI_HEDDLE_RINGS", "1", 1);
        reader_world_.emplace();
    }

    void open(std::size_t talkers, fi_wait_obj wait = FI_WAIT_NONE) {
        reader_.emplace(*reader_world_, wait);
        reader_->enable();
        for (std::size_t i = 0; i < talkers; ++i) {
            talkers_.push_back(std::make_unique<Talker>());
            talkers_.back()->to_us = talkers_.back()->station.add(*reader_);
            reader_->add(talkers_.back()->station);
        }
    }

    // What counted, once everything is closed.
    nlohmann::json closed() {
        reader_.reset();
        talkers_.clear();
        reader_world_.reset();
        return statistics_.read();
    }

    static std::size_t size_of(int number) {
        static constexpr std::size_t kRingSizes[] = {8, 0, 3000, 300, 64, 1, 4000, 129};
        return kRingSizes[static_cast<std::size_t>(number) % std::size(kRingSizes)];
    }
    static char content(int number, std::size_t at) {
        return static_cast<char>(number * 31 + static_cast<int>(at) * 7);
    }

    void send(Talker& from, bool wait = true) {
        const int number = from.sent++;
        std::vector<char> bytes(size_of(number));
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = content(number, i);
        fid_cq* const cq = from.station.transmit.get();
        const auto data = static_cast<std::uint64_t>(number) << (number % 3 == 0 ? 32 : 0);
        buffers_.push_back(std::move(bytes));
        const std::vector<char>& kept = buffers_.back();
        ASSERT_EQ(insist(cq,
                         [&] {
                             return fi_tsenddata(from.station.ep.get(), kept.data(), kept.size(),
                                                 nullptr, data, from.to_us, 9, nullptr);
                         }),
                  0);
        fi_cq_tagged_entry entry;
        if (wait) {
            ASSERT_EQ(next(cq, entry), 0);
        }
    }

    void post() {
        ASSERT_EQ(fi_trecv(reader_->ep.get(), room_.data(), kRingRoom, nullptr, FI_ADDR_UNSPEC, 9,
                           0, nullptr),
                  0);
    }
    void check(const fi_cq_tagged_entry& entry, int number) {
        ASSERT_EQ(entry.len, size_of(number));
        ASSERT_EQ(entry.data, static_cast<std::uint64_t>(number) << (number % 3 == 0 ? 32 : 0));
        for (std::size_t i = 0; i < entry.len; ++i)
            ASSERT_EQ(room_[i], content(number, i)) << i << " of " << number;
    }
    void receive(int number, Talker* progress = nullptr) {
        post();
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(reader_->receive.get(), entry,
                       progress != nullptr ? progress->station.transmit.get() : nullptr),
                  0);
        check(entry, number);
    }
    // Waits for the completion of one send. While the reader is many messages behind, the last
    // completions come only once it has read all of them.
    void ended(Talker& from) {
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(from.station.transmit.get(), entry, reader_->receive.get()), 0);
    }
    void talk(Talker& from) {
        for (int i = 0; i < kMany; ++i) {
            const int number = from.sent;
            ASSERT_NO_FATAL_FAILURE(send(from, false));
            ASSERT_NO_FATAL_FAILURE(receive(number, &from));
            ASSERT_NO_FATAL_FAILURE(ended(from));
        }
    }

    Statistics statistics_;
    std::vector<std::vector<char>> buffers_;
    std::array<char, kRingRoom> room_;
    std::optional<World> reader_world_;
    std::optional<Station> reader_;
    std::vector<std::unique_ptr<Talker>> talkers_;
};

TEST_F(Rings, AreOfWhoTalks) {
    open(1);
    talk(*talkers_[0]);
    // The offer is the reader's first message: its connection is made by a thread, which a loaded
    // machine may keep waiting.
    const auto end = std::chrono::steady_clock::now() + 1s;
    while (std::chrono::steady_clock::now() < end) {
        fi_cq_read(reader_->receive.get(), nullptr, 0);
        fi_cq_read(talkers_[0]->station.transmit.get(), nullptr, 0);
        std::this_thread::sleep_for(1ms);
    }
    talk(*talkers_[0]);
    const auto counts = closed();
    EXPECT_EQ(counts["rings"], 1);
    EXPECT_GT(counts["from_rings"], kMany / 4);  // after 64 messages, and as many more as it takes
    EXPECT_EQ(counts["from_rings"], counts["by_ring"]);
}

// Nothing more fits: by SEND, which must not overtake what lies in the ring.
TEST_F(Rings, ThatAreFull) {
    open(1);
    Talker& talker = *talkers_[0];
    talk(talker);
    const int first = talker.sent;
    for (int i = 0; i < kMany; ++i)
        ASSERT_NO_FATAL_FAILURE(send(talker, false));
    for (int i = 0; i < kMany; ++i)
        ASSERT_NO_FATAL_FAILURE(receive(first + i, &talker));
    for (int i = 0; i < kMany; ++i)
        ASSERT_NO_FATAL_FAILURE(ended(talker));
    ASSERT_NO_FATAL_FAILURE(talk(talker));
    const auto counts = closed();
    EXPECT_EQ(counts["rings"], 1);
    EXPECT_LT(counts["from_rings"], counts["received"]);
}

// The only ring goes from a sender that has become silent to the one that talks now.
TEST_F(Rings, GoToWhoTalksNow) {
    open(2);
    talk(*talkers_[0]);
    // The reader looks once a second. The first look still sees messages of the old talker; the
    // second takes the ring back, and one after the answer offers it anew. Below a sanitizer on a
    // loaded machine looks come late.
    const char* const sanitizer = std::getenv("HEDDLE_SANITIZE");
    const auto window = sanitizer != nullptr && *sanitizer != '\0' ? 15s : 4s;
    const auto end = std::chrono::steady_clock::now() + window;
    for (fi_cq_tagged_entry entry; std::chrono::steady_clock::now() < end;) {
        ASSERT_NO_FATAL_FAILURE(talk(*talkers_[1]));
        fi_cq_read(talkers_[0]->station.transmit.get(), &entry, 1);  // it must hear of it
    }
    ASSERT_NO_FATAL_FAILURE(talk(*talkers_[0]));
    EXPECT_EQ(closed()["rings"], 2);
}

// An RDMA write raises no event, so a reader that sleeps offers no ring.
TEST_F(Rings, AreNotOfSleepers) {
    open(1, FI_WAIT_UNSPEC);
    Talker& talker = *talkers_[0];
    talk(talker);
    for (int i = 0; i < 3; ++i) {
        const int number = talker.sent;
        post();
        std::atomic<bool> read{false};
        std::thread sender([&] {
            std::this_thread::sleep_for(50ms);
            send(talker);
            fi_cq_tagged_entry entry;
            while (!read)
                fi_cq_read(talker.station.transmit.get(), &entry, 1);
        });
        fi_cq_tagged_entry entry{};
        EXPECT_EQ(fi_cq_sread(reader_->receive.get(), &entry, 1, nullptr, 20'000), 1);
        read = true;
        sender.join();
        ASSERT_NO_FATAL_FAILURE(check(entry, number));
    }
    const auto counts = closed();
    EXPECT_EQ(counts["rings"], 1);
    EXPECT_LE(counts["from_rings"], kMany + 1);
}

}  // namespace
}  // namespace heddle::test
