// SPDX-License-Identifier: BSD-2-Clause
// Receives by the direct path, on a QP's own queue and on a shared one: many times around the ring,
// with several SGEs, and with small messages in the completion itself. Also results of reads and
// atomics in the completion, and a CQ that is armed and wakes a sleeping thread. All data is
// compared byte for byte.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "heddle/endpoint.h"
#include "tests/endpoint/address_of.h"
#include "verbs/connection.h"
#include "verbs/handles.h"
#include "verbs/open_device.h"

namespace heddle::post {
namespace {

constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kOut = 0, kIn = 4096, kSlot = 512, kMemory = kIn + kDepth * kSlot;

// Returns a number from 1 to n.
std::uint32_t below(std::mt19937& random, std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(1, n)(random);
}

void fill(std::byte* at, std::size_t bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes; ++i)
        at[i] = static_cast<std::byte>(seed * 31 + i * 7);
}

using EventChannel = std::unique_ptr<ibv_comp_channel, verbs::Destroy<ibv_destroy_comp_channel>>;
using XrcDomain = std::unique_ptr<ibv_xrcd, verbs::Destroy<ibv_close_xrcd>>;
using Srq = std::unique_ptr<ibv_srq, verbs::Destroy<ibv_destroy_srq>>;

struct Memory {
    verbs::Context context = verbs::open_device("");
    verbs::ProtectionDomain pd{ibv_alloc_pd(context.get())};
    std::vector<std::byte> bytes = std::vector<std::byte>(kMemory);
    verbs::MemoryRegion mr{ibv_reg_mr(pd.get(), bytes.data(), bytes.size(),
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE)};
    ibv_sge piece(std::size_t at, std::size_t length) const {
        return {address_of(bytes.data()) + at, static_cast<std::uint32_t>(length), mr->lkey};
    }
};

Srq shared_queue(const Memory& memory) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {kDepth, 3, 0};
    Srq srq(ibv_create_srq(memory.pd.get(), &attributes));
    if (!srq) throw VerbsError("a shared receive queue", errno);
    return srq;
}

// A QP that is connected to itself, posted to and polled by the direct path.
template <class Lock = SingleThreaded>
struct Loop {
    struct Options {
        ibv_srq* srq = nullptr;  // else it has receives of its own
        ibv_comp_channel* channel = nullptr;
        bool signal_all = false;
    };
    Loop(const Memory& memory, const Options& o)
        : cq(ibv_create_cq(memory.context.get(), 128, nullptr, o.channel, 0)),
          qp(make(memory, o)),
          send(qp.get(), o.signal_all, 200, false),
          completions(cq.get()) {
        completions.add(send);
    }
    verbs::QueuePair make(const Memory& memory, const Options& o) const {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = cq.get();
        a.srq = o.srq;
        a.qp_type = IBV_QPT_RC;
        a.sq_sig_all = o.signal_all ? 1 : 0;
        a.cap = {kDepth, o.srq != nullptr ? 0 : kDepth, 3, o.srq != nullptr ? 0u : 3u, 200};
        verbs::QueuePair made(ibv_create_qp(memory.pd.get(), &a));
        if (!made) throw VerbsError("a queue pair", errno);
        verbs::connect(made.get(), verbs::address_of(made.get()));
        return made;
    }
    Completion wait() {
        Completion completion;
        while (completions.poll(&completion, 1) == 0) {
        }
        return completion;
    }

    verbs::CompletionQueue cq;
    verbs::QueuePair qp;
    Mlx5SendQueue<Lock> send;
    Mlx5CompletionQueue<Lock> completions;
};

// With a receive queue of its own.
struct OwnReceives : Loop<> {
    explicit OwnReceives(const Memory& memory, ibv_comp_channel* channel = nullptr)
        : Loop(memory, {nullptr, channel, false}), receive(qp.get()) {
        completions.add(receive);
    }
    Mlx5ReceiveQueue<SingleThreaded> receive;
};

// Divides a message into up to three SGEs, some of them empty.
std::vector<ibv_sge> cut(const Memory& memory, std::size_t at, std::uint32_t length,
                         std::mt19937& random) {
    std::vector<ibv_sge> sges;
    std::uint32_t from = 0;
    for (int i = 0; i < 3; ++i) {
        const std::uint32_t part =
            i == 2 ? length - from
                   : std::uniform_int_distribution<std::uint32_t>(0, length - from)(random);
        if (part != 0 || random() % 2 == 0) sges.push_back(memory.piece(at + from, part));
        from += part;
    }
    return sges;
}

TEST(DirectReceives, OfAnOwnQueueManyTimesAround) {
    Memory memory;
    std::mt19937 random(3);
    OwnReceives loop(memory);
    for (std::uint32_t round = 0; round < 3000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Small messages arrive in the completion.
        const std::uint32_t length = below(random, round % 3 == 0 ? 400 : 70);
        fill(memory.bytes.data() + kOut, length, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        ASSERT_EQ(loop.receive.post_now(into, round), Posted::kOk);
        const auto from = cut(memory, kOut, length, random);
        WorkRequest work;
        work.opcode = round % 2 == 0 ? Opcode::kSend : Opcode::kSendImm;
        work.immediate = round;
        work.sges = from;
        work.id = ~round;
        work.flags = kSignaled;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        for (int i = 0; i < 2; ++i) {
            const Completion completion = loop.wait();
            ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
            if (completion.opcode == IBV_WC_SEND) {
                EXPECT_EQ(completion.id, ~round);
                continue;
            }
            EXPECT_EQ(completion.opcode, IBV_WC_RECV);
            EXPECT_EQ(completion.id, round);
            EXPECT_EQ(completion.bytes, length);
            EXPECT_EQ(completion.has_immediate, round % 2 != 0);
            if (completion.has_immediate) {
                EXPECT_EQ(completion.immediate, round);
            }
        }
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
    }
}

TEST(DirectReceives, FullIsSaidAndEndsWithACompletion) {
    Memory memory;
    OwnReceives loop(memory);
    const ibv_sge into = memory.piece(kIn, kSlot);
    std::uint32_t posted = 0;
    while (loop.receive.post_now({&into, 1}, posted) == Posted::kOk)
        ++posted;
    EXPECT_EQ(posted, kDepth);
    const std::vector<ibv_sge> many(64, into);
    EXPECT_EQ(loop.receive.post_now(many, 0), Posted::kInvalid);
    WorkRequest work;
    ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
    EXPECT_EQ(loop.wait().id, 0u);
    EXPECT_EQ(loop.receive.post_now({&into, 1}, 7), Posted::kOk);
    // The rest is flushed in order, each with its id.
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(loop.qp.get(), &error, IBV_QP_STATE), 0);
    for (std::uint64_t id = 1; id <= kDepth; ++id) {
        const Completion completion = loop.wait();
        EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(completion.id, id == kDepth ? 7 : id);
    }
}

// Two QPs take receives from one queue in a random order, so WQEs complete in another order.
TEST(DirectReceives, OfASharedQueueManyTimesAround) {
    Memory memory;
    std::mt19937 random(5);
    const Srq srq = shared_queue(memory);
    Loop<SpinLock> loops[] = {{memory, {.srq = srq.get()}}, {memory, {.srq = srq.get()}}};
    Mlx5SharedReceiveQueue<SpinLock> receive(srq.get());
    EXPECT_NE(receive.number(), 0u);
    for (Loop<SpinLock>& loop : loops)
        loop.completions.add(receive, loop.qp->qp_num);
    // Fills the queue. The id says in which slot of memory the message will be.
    std::uint32_t slots = 0;
    const auto post = [&](std::uint32_t slot) {
        const ibv_sge into = memory.piece(kIn + slot * kSlot, kSlot);
        return receive.post_now({&into, 1}, slot);
    };
    while (slots < kDepth && post(slots) == Posted::kOk)
        ++slots;
    ASSERT_GE(slots, kDepth / 2);
    for (std::uint32_t round = 0; round < 2000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        // Some messages, then their completions, those of the second QP first.
        const std::uint32_t count = below(random, 4);
        std::uint32_t lengths[2][4], sent[2] = {0, 0};
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::size_t q = random() % 2;
            const std::uint32_t length = below(random, round % 2 != 0 ? 60 : 300);
            fill(memory.bytes.data() + kOut + q * 2048 + sent[q] * 512, length, round + i);
            const ibv_sge from = memory.piece(kOut + q * 2048 + sent[q] * 512, length);
            WorkRequest work;
            work.sges = {&from, 1};
            work.flags = kSignaled;
            ASSERT_EQ(loops[q].send.post_now(work), Posted::kOk);
            lengths[q][sent[q]++] = length;
        }
        for (const std::size_t q : {1, 0})
            for (std::uint32_t i = 0; i < sent[q]; ++i) {
                Completion completion;
                do
                    completion = loops[q].wait();
                while (completion.opcode == IBV_WC_SEND && completion.status == IBV_WC_SUCCESS);
                ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
                ASSERT_LT(completion.id, slots);
                EXPECT_EQ(completion.bytes, lengths[q][i]);
                ASSERT_EQ(
                    std::memcmp(memory.bytes.data() + kIn + completion.id * kSlot,
                                memory.bytes.data() + kOut + q * 2048 + i * 512, completion.bytes),
                    0);
                ASSERT_EQ(post(static_cast<std::uint32_t>(completion.id)), Posted::kOk);
            }
    }
}

// A shared queue whose WQEs have memory of their own gets messages one by one.
struct OneByOne {
    OneByOne() {
        receive.fill([this](std::uint32_t index, std::uint64_t& id) {
            id = index;
            return memory.piece(kIn, 64);
        });
        receive.post_again(entries - 1);
    }
    std::uint32_t next() {  // the entry that the next message takes
        const ibv_sge from = memory.piece(kOut, 8);
        WorkRequest work;
        work.sges = {&from, 1};
        EXPECT_EQ(loop.send.post_now(work), Posted::kOk);
        std::optional<std::uint32_t> entry;
        for (bool sent = false; !sent || !entry;) {
            const mlx5_cqe64* const cqe = loop.completions.first();
            if (cqe == nullptr) continue;
            loop.completions.pop();
            if (cqe->op_own >> 4 == MLX5_CQE_REQ)
                sent = loop.completions.completion(*cqe).status == IBV_WC_SUCCESS;
            else
                entry = be16toh(cqe->wqe_counter);
            loop.completions.publish();
        }
        return *entry;
    }

    Memory memory;
    Srq srq = shared_queue(memory);
    Loop<> loop{memory, {.srq = srq.get(), .signal_all = true}};
    Mlx5SharedReceiveQueue<SingleThreaded> receive{srq.get()};
    const std::uint32_t entries = receive.entries();
};

// WQEs that complete in any order are posted in the order of their indices.
TEST(DirectReceives, OfASharedQueueStayNeighbours) {
    OneByOne queue;
    std::mt19937 random(13);
    std::uint32_t expected = 0;
    for (std::uint32_t round = 0; round < 200; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        std::vector<std::uint32_t> taken;
        const std::uint32_t count = below(random, queue.entries - 1);
        for (std::uint32_t i = 0; i < count; ++i) {
            taken.push_back(queue.next());
            ASSERT_EQ(taken.back(), expected);
            expected = (expected + 1) % queue.entries;
        }
        std::shuffle(taken.begin(), taken.end(), random);
        for (const std::uint32_t entry : taken)
            queue.receive.release_own(entry);
        queue.receive.post_again(count);
    }
}

// A WQE that stays in use is skipped, and enters the list again after it has been returned.
TEST(DirectReceives, OfASharedQueueThatKeepsOne) {
    OneByOne queue;
    std::vector<std::uint32_t> uses(queue.entries);
    std::uint32_t kept = queue.next();
    for (std::uint32_t i = 0; i < 50 * queue.entries; ++i) {
        const std::uint32_t entry = queue.next();
        ASSERT_NE(entry, kept);
        ++uses[entry];
        // Sometimes the test begins to keep another WQE.
        const bool swap = i % (3 * queue.entries) == 0;
        queue.receive.release_own(swap ? std::exchange(kept, entry) : entry);
        queue.receive.post_again(1);
    }
    for (std::uint32_t entry = 0; entry < queue.entries; ++entry)
        EXPECT_GT(uses[entry], 30u) << "entry " << entry;
}

// An XRC shared queue with initiators whose targets are created later: the CQ knows the initiators
// but not the targets.
struct XrcLoop {
    XrcLoop() {
        ibv_xrcd_init_attr d{};
        d.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        d.fd = -1;
        d.oflags = O_CREAT;
        domain.reset(ibv_open_xrcd(memory.context.get(), &d));
        if (!domain) throw VerbsError("an XRC domain", errno);
        ibv_srq_init_attr_ex s{};
        s.attr = {kDepth, 3, 0};
        s.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
        s.srq_type = IBV_SRQT_XRC;
        s.pd = memory.pd.get();
        s.xrcd = domain.get();
        s.cq = cq.get();
        srq.reset(ibv_create_srq_ex(memory.context.get(), &s));
        if (!srq) throw VerbsError("an XRC shared receive queue", errno);
    }
    verbs::QueuePair initiator() const {
        ibv_qp_init_attr_ex a{};
        a.send_cq = a.recv_cq = cq.get();
        a.comp_mask = IBV_QP_INIT_ATTR_PD;
        a.pd = memory.pd.get();
        a.cap = {kDepth, 0, 3, 0, 200};
        a.qp_type = IBV_QPT_XRC_SEND;
        return made(a);
    }
    verbs::QueuePair target_of(ibv_qp* initiator) const {
        ibv_qp_init_attr_ex a{};
        a.qp_type = IBV_QPT_XRC_RECV;
        a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        a.xrcd = domain.get();
        verbs::QueuePair target = made(a);
        verbs::connect(target.get(), verbs::address_of(initiator));
        verbs::connect(initiator, verbs::address_of(target.get()));
        return target;
    }
    verbs::QueuePair made(ibv_qp_init_attr_ex& a) const {
        verbs::QueuePair qp(ibv_create_qp_ex(memory.context.get(), &a));
        if (!qp) throw VerbsError("a queue pair", errno);
        return qp;
    }

    Memory memory;
    XrcDomain domain;
    verbs::CompletionQueue cq{ibv_create_cq(memory.context.get(), 128, nullptr, nullptr, 0)};
    Srq srq;
};

TEST(DirectReceives, OfXrcTargetsThatThePollerDoesNotKnow) {
    XrcLoop x;
    Memory& memory = x.memory;
    const verbs::QueuePair qps[] = {x.initiator(), x.initiator()};
    Mlx5SharedReceiveQueue<SpinLock> receive(x.srq.get());
    Mlx5SendQueue<SpinLock> sends[] = {{qps[0].get(), false, 200, false},
                                       {qps[1].get(), false, 200, false}};
    Mlx5CompletionQueue<SpinLock> completions(x.cq.get());
    completions.add(sends[0]);
    completions.add(sends[1]);
    completions.add_default(receive);
    const verbs::QueuePair targets[] = {x.target_of(qps[0].get()), x.target_of(qps[1].get())};
    std::mt19937 random(11);
    for (std::uint32_t round = 0; round < 1000; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const std::uint32_t length = below(random, round % 2 != 0 ? 60 : 400);
        fill(memory.bytes.data() + kOut, length, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        ASSERT_EQ(receive.post(into, round), Posted::kOk);
        ASSERT_EQ(receive.ring_doorbell(), Posted::kOk);
        const ibv_sge from = memory.piece(kOut, length);
        WorkRequest work;
        work.sges = {&from, 1};
        work.id = ~round;
        work.flags = kSignaled;
        work.remote_srq = receive.number();
        ASSERT_EQ(sends[random() % 2].post_now(work), Posted::kOk);
        for (int i = 0; i < 2; ++i) {
            Completion completion;
            while (completions.poll(&completion, 1) == 0) {
            }
            ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
            EXPECT_EQ(completion.id, completion.opcode == IBV_WC_SEND ? ~round : round);
            if (completion.opcode == IBV_WC_RECV) {
                EXPECT_EQ(completion.bytes, length);
            }
        }
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
    }
}

// A shared queue by the verbs path: it posts a list at once and keeps requests that do not fit.
TEST(VerbsSharedReceives, GoAsAList) {
    XrcLoop x;
    Memory& memory = x.memory;
    const verbs::QueuePair qp = x.initiator();
    const verbs::QueuePair target = x.target_of(qp.get());
    VerbsSharedReceiveQueue<SingleThreaded> receive(x.srq.get(), 4);
    VerbsSendQueue<SingleThreaded> send(qp.get(), 1);
    VerbsCompletionQueue completions(x.cq.get());
    ASSERT_NE(receive.number(), 0u);
    const auto wait = [&] {  // for a receive
        Completion completion;
        do
            while (completions.poll(&completion, 1) == 0) {
            }
        while (completion.opcode == IBV_WC_SEND && completion.status == IBV_WC_SUCCESS);
        return completion;
    };
    const auto into = [&](std::uint64_t id) { return memory.piece(kIn + id % kDepth * kSlot, 64); };
    const auto message = [&](std::uint32_t seed) {
        fill(memory.bytes.data() + kOut, 64, seed);
        const ibv_sge from = memory.piece(kOut, 64);
        WorkRequest work;
        work.sges = {&from, 1};
        work.flags = kSignaled;
        work.remote_srq = receive.number();
        ASSERT_EQ(send.post_now(work), Posted::kOk);
    };
    // Three receives wait for the doorbell. After it the messages take them in order.
    for (std::uint64_t id = 0; id < 3; ++id) {
        const ibv_sge piece = into(id);
        ASSERT_EQ(receive.post({&piece, 1}, id), Posted::kOk);
    }
    ASSERT_EQ(receive.ring_doorbell(), Posted::kOk);
    for (std::uint32_t id = 0; id < 3; ++id) {
        message(id);
        const Completion completion = wait();
        EXPECT_EQ(completion.opcode, IBV_WC_RECV);
        EXPECT_EQ(completion.id, id);
        EXPECT_EQ(
            std::memcmp(memory.bytes.data() + kIn + id * kSlot, memory.bytes.data() + kOut, 64), 0);
    }
    const ibv_sge piece = into(3);
    std::uint64_t taken = 0;
    Posted posted;
    while ((posted = receive.post_now({&piece, 1}, taken)) == Posted::kOk)
        ++taken;
    EXPECT_EQ(posted, Posted::kFull);
    ASSERT_GE(taken, kDepth / 2);
    // One request too many in a list: the queue keeps it and posts it when there is room.
    ASSERT_EQ(receive.post({&piece, 1}, taken), Posted::kOk);
    EXPECT_EQ(receive.ring_doorbell(), Posted::kFull);
    message(0);
    EXPECT_EQ(wait().id, 0u);
    EXPECT_EQ(receive.ring_doorbell(), Posted::kOk);
    for (std::uint64_t id = 1; id <= taken; ++id) {
        message(0);
        EXPECT_EQ(wait().id, id);
    }
    const std::vector<ibv_sge> many(
        detail::VerbsList<SingleThreaded, ibv_srq, ibv_recv_wr>::kMaxSges + 1, piece);
    EXPECT_EQ(receive.post_now(many, 0), Posted::kInvalid);
}

// If a QP signals all requests, small results arrive in the completion. That is mlx5's scatter to
// CQE; the IBTA specification does not have it.
TEST(DirectAnswers, ComeWhereTheyWereAskedFor) {
    Memory memory;
    Loop<> loop(memory, {.signal_all = true});
    std::mt19937 random(9);
    for (std::uint32_t round = 0; round < 300; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const std::uint32_t length = below(random, 80);
        fill(memory.bytes.data() + kOut, 512, round);
        std::memset(memory.bytes.data() + kIn, 0, kSlot);
        const auto into = cut(memory, kIn, length, random);
        WorkRequest work;
        work.opcode = Opcode::kRead;
        work.sges = into;
        work.remote_address = address_of(memory.bytes.data());
        work.remote_key = memory.mr->rkey;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        ASSERT_EQ(loop.wait().status, IBV_WC_SUCCESS);
        ASSERT_EQ(std::memcmp(memory.bytes.data() + kIn, memory.bytes.data() + kOut, length), 0);
        std::uint64_t before, got;
        std::memcpy(&before, memory.bytes.data() + kOut, 8);
        const ibv_sge answer = memory.piece(kIn + 128, 8);
        work.opcode = Opcode::kFetchAdd;
        work.sges = {&answer, 1};
        work.compare_or_add = 5;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        ASSERT_EQ(loop.wait().status, IBV_WC_SUCCESS);
        std::memcpy(&got, memory.bytes.data() + kIn + 128, 8);
        ASSERT_EQ(got, before);
    }
}

TEST(DirectArm, WakesTheSleeper) {
    Memory memory;
    const EventChannel channel(ibv_create_comp_channel(memory.context.get()));
    OwnReceives loop(memory, channel.get());
    const auto event = [&](int milliseconds) {
        pollfd fd{channel->fd, POLLIN, 0};
        return ::poll(&fd, 1, milliseconds) == 1;
    };
    const ibv_sge into = memory.piece(kIn, 64), from = memory.piece(kOut, 8);
    const auto message = [&](std::uint8_t flags) {
        ASSERT_EQ(loop.receive.post_now({&into, 1}, 1), Posted::kOk);
        WorkRequest work;
        work.sges = {&from, 1};
        work.flags = flags;
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
    };
    unsigned events = 0;
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        message(0);
        loop.wait();
        EXPECT_FALSE(event(0)) << "it was not armed";
        loop.completions.arm(round % 2 != 0);
        if (round % 2 != 0) {
            message(0);
            loop.wait();
            EXPECT_FALSE(event(20)) << "an entry that is not solicited";
        }
        message(kSolicited);
        ASSERT_TRUE(event(5000));
        ibv_cq* which;
        void* context;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &context), 0);
        EXPECT_EQ(which, loop.cq.get());
        loop.completions.event_read();
        ++events;
        loop.wait();
    }
    ibv_ack_cq_events(loop.cq.get(), events);
}

// A thread that sleeps with a timeout arms the queue often, and usually no completion arrives.
TEST(DirectArm, WakesTheSleeperAfterArmsWithoutEvents) {
    Memory memory;
    const EventChannel channel(ibv_create_comp_channel(memory.context.get()));
    OwnReceives loop(memory, channel.get());
    const ibv_sge into = memory.piece(kIn, 64), from = memory.piece(kOut, 8);
    unsigned events = 0;
    for (unsigned arms = 1; arms <= 9; ++arms) {
        SCOPED_TRACE(testing::Message() << arms << " arms");
        for (unsigned arm = 0; arm < arms; ++arm)
            loop.completions.arm(false);
        ASSERT_EQ(loop.receive.post_now({&into, 1}, 1), Posted::kOk);
        WorkRequest work;
        work.sges = {&from, 1};
        ASSERT_EQ(loop.send.post_now(work), Posted::kOk);
        pollfd fd{channel->fd, POLLIN, 0};
        ASSERT_EQ(::poll(&fd, 1, 5000), 1);
        ibv_cq* which;
        void* context;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &context), 0);
        loop.completions.event_read();
        ++events;
        loop.wait();
    }
    ibv_ack_cq_events(loop.cq.get(), events);
}

TEST(DirectReceives, OfAQpWithoutAQueueAreRefused) {
    Memory memory;
    const Srq srq = shared_queue(memory);
    const Loop<> loop(memory, {.srq = srq.get()});
    try {
        const Mlx5ReceiveQueue<SingleThreaded> receive(loop.qp.get());
        FAIL();
    } catch (const VerbsError& error) {
        EXPECT_NE(std::string(error.what()).find("without a receive queue"), std::string::npos);
    }
}

}  // namespace
}  // namespace heddle::post
