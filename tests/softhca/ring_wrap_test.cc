// SPDX-License-Identifier: BSD-2-Clause
// Streams of thousands of messages through small queues: WQEs of 1 to several 64-byte blocks,
// inline and gathered, in changing order, so that every kind of WQE ends up straddling the end of
// the ring; signalled now and then only. Each message carries its number and must arrive in order,
// whole. Lives by an error in wrapping the send ring, receive ring, SRQ list or CQ, in the 16-bit
// counters (more than 65536 WQE blocks pass), in resuming after RNR, and in the order of a QP.

#include <cstring>
#include <random>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

struct Mix {
    Transport transport;
    Placement placement;
    bool srq;
    std::uint32_t messages;
};

std::string case_name(const testing::TestParamInfo<Mix>& info) {
    return std::string(name(info.param.transport)) + (info.param.srq ? "Srq" : "") +
           name(info.param.placement);
}

constexpr std::uint32_t kSlots = 24;
constexpr std::size_t kSlot = 2048;

class Streams : public testing::TestWithParam<Mix> {
protected:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.transport = GetParam().transport;
        options.srq = GetParam().srq;
        options.send_depth = 13;  // not a power of two
        options.receive_depth = kSlots;
        options.send_sges = 5;
        options.receive_sges = 3;
        options.inline_size = 180;
        options.cq_depth = 37;
        options.memory = kSlots * kSlot;
        return options;
    }

    // Reliable transports wait for a receive (RNR); the others lose what finds none, so there the
    // receiver tells how many it has consumed.
    static bool needs_credit() {
        return GetParam().transport == Transport::kUc || GetParam().transport == Transport::kUd;
    }

    // The number is the first four bytes, the length the next four, then a pattern of the number.
    static void write_message(std::uint8_t* at, std::uint32_t number, std::uint32_t length) {
        std::memcpy(at, &number, 4);
        std::memcpy(at + 4, &length, 4);
        fill_pattern(at + 8, length - 8, number);
    }

    static Work random_send(const Endpoint& e, std::mt19937& random, std::uint32_t number) {
        const bool is_inline = random() % 3 == 0;
        const std::size_t spread = is_inline ? 173 : random() % 4 != 0 ? 200 : kSlot - 48;
        const auto length = static_cast<std::uint32_t>(8 + random() % spread);
        const std::size_t slot = (number % kSlots) * kSlot;
        write_message(e.memory->data() + slot, number, length);
        Work work;
        work.flags = IBV_SEND_INLINE;
        work.id = number;
        work.opcode = number % 3 != 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
        work.immediate = number;
        if (!is_inline) work.flags = 0;
        const std::size_t count = 1 + random() % 5;
        std::size_t at = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t rest = length - at;
            const std::size_t part = i + 1 == count ? rest : random() % (rest + 1);
            work.sges.push_back(e.memory->sge(slot + at, part));
            at += part;
        }
        return work;
    }
};

TEST_P(Streams, ArriveInOrderAndWhole) {
    const std::uint32_t messages = GetParam().messages;
    const auto sender = [&](Channel& channel) {
        Endpoint e(options());
        connect_over(channel, e);
        std::mt19937 random(7);
        std::uint32_t unsignalled = 0;
        std::uint32_t consumed = 0;
        for (std::uint32_t number = 0; number < messages; ++number) {
            while (needs_credit() && number - consumed >= kSlots)
                consumed = channel.receive<std::uint32_t>();
            Work work = random_send(e, random, number);
            const bool signal = unsignalled >= 5 || random() % 4 == 0 || number + 1 == messages;
            if (signal) work.flags |= IBV_SEND_SIGNALED;
            unsignalled = signal ? 0 : unsignalled + 1;
            ASSERT_EQ(e.post(work), 0) << "message " << number;
            if (!signal) continue;
            const ibv_wc wc = e.wait_send();
            ASSERT_TRUE(succeeded(wc));
            ASSERT_EQ(wc.wr_id, number) << "an unsignalled send completed, or out of order";
        }
        while (needs_credit() && consumed < messages / (kSlots / 2) * (kSlots / 2))
            consumed = channel.receive<std::uint32_t>();
        channel.meet();
    };
    const auto receiver = [&](Channel& channel) {
        Endpoint e(options());
        const auto post = [&](std::uint64_t slot) {
            const std::size_t base = slot * kSlot;  // three SGEs that end at odd offsets
            return e.post_receive(slot, {e.memory->sge(base, 45), e.memory->sge(base + 45, 1),
                                         e.memory->sge(base + 46, kSlot - 46)});
        };
        e.to_init();  // the earliest state in which receives may be posted
        for (std::uint32_t slot = 0; slot < kSlots; ++slot)
            ASSERT_EQ(post(slot), 0);
        channel.send(e.address());
        e.to_ready_to_receive(channel.receive<Address>());
        e.to_ready_to_send();
        channel.meet();
        for (std::uint32_t number = 0; number < messages; ++number) {
            const ibv_wc wc = e.wait_receive();
            ASSERT_TRUE(succeeded(wc));
            const std::uint8_t* slot = e.memory->data() + wc.wr_id * kSlot + e.grh();
            std::uint32_t got = 0;
            std::uint32_t length = 0;
            std::memcpy(&got, slot, 4);
            std::memcpy(&length, slot + 4, 4);
            ASSERT_EQ(got, number) << "out of order or lost";
            ASSERT_EQ(length + e.grh(), wc.byte_len);
            ASSERT_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, number % 3 == 0);
            ASSERT_TRUE(has_pattern(slot + 8, length - 8, number))
                << "message " << number << " of " << length << " bytes";
            std::memset(e.memory->data() + wc.wr_id * kSlot, 0xee, kSlot);
            ASSERT_EQ(post(wc.wr_id), 0);
            if (needs_credit() && (number + 1) % (kSlots / 2) == 0) channel.send(number + 1);
        }
        channel.meet();
    };
    run_sides(GetParam().placement, sender, receiver);
}

INSTANTIATE_TEST_SUITE_P(Each, Streams,
                         testing::Values(Mix{Transport::kRc, Placement::kThreads, false, 60000},
                                         Mix{Transport::kRc, Placement::kProcesses, false, 60000},
                                         Mix{Transport::kRc, Placement::kThreads, true, 20000},
                                         Mix{Transport::kRc, Placement::kProcesses, true, 20000},
                                         Mix{Transport::kXrc, Placement::kThreads, false, 20000},
                                         Mix{Transport::kXrc, Placement::kProcesses, false, 20000},
                                         Mix{Transport::kUc, Placement::kThreads, false, 20000},
                                         Mix{Transport::kUc, Placement::kProcesses, false, 20000},
                                         Mix{Transport::kUd, Placement::kThreads, false, 20000},
                                         Mix{Transport::kUd, Placement::kProcesses, false, 20000},
                                         Mix{Transport::kUd, Placement::kProcesses, true, 20000}),
                         case_name);

}  // namespace
}  // namespace softhca::test
