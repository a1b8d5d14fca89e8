// SPDX-License-Identifier: BSD-2-Clause
// A member of the fabric that writes nonsense into the segment: it spoils messages, but makes no
// other member crash, or read, write, unmap or send what is neither a queue nor registered memory.
// tests/fuzz/segment_fuzz.cc does the same at random.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "segment_file.h"

namespace softhca::test {
namespace {

using std::chrono::milliseconds;

// A field that says something else as long as this lives.
template <class T>
class Corrupted {
public:
    template <class Value>
    Corrupted(T& field, Value value) : field_(field) {
        std::memcpy(before_, static_cast<void*>(&field), sizeof field);
        field = static_cast<std::remove_cvref_t<decltype(read(field))>>(value);
    }
    ~Corrupted() { std::memcpy(static_cast<void*>(&field_), before_, sizeof field_); }
    Corrupted(const Corrupted&) = delete;
    Corrupted& operator=(const Corrupted&) = delete;

private:
    template <class U>
    static U read(const std::atomic<U>&);
    template <class U>
    static U read(const U&);

    T& field_;
    std::byte before_[sizeof(T)];
};

constexpr std::uint32_t kFar = 0x7fff'fff0;

class CorruptSegment : public testing::Test {
protected:
    device::QueuePair& record(const ibv_qp* qp) {
        return segment->qps[qp->qp_num & (device::kMaxQps - 1)];
    }
    device::CompletionQueue& record(const ibv_cq* cq) { return segment->cqs[cq->handle]; }
    device::MemoryRegion& record(const ibv_mr* mr) { return segment->mrs[mr->lkey >> 8]; }
    device::Process& self() {
        for (device::Process& process : segment->processes)
            if (process.state.load() == device::kLive && process.pid == getpid()) return process;
        fail("this process has no slot");
    }

    Pair pair;
    const SegmentFile segment;
};

TEST_F(CorruptSegment, NamesACompletionQueueThatThereIsNot) {
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 4096)}), 0);
    const Corrupted damage(record(pair.b.qp.get()).recv_cq, kFar);
    EXPECT_TRUE(pair.a.run(send_of(pair.a, 1000)));
}

// More than an entry has room for: it goes where it always goes.
TEST_F(CorruptSegment, ScattersMoreIntoAnEntry) {
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{100}}) {
        ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 4096)}), 0);
        pair.a.memory->fill(0, bytes, 7);
        const Corrupted damage(record(pair.b.qp.get()).scatter_recv, 4096);
        EXPECT_TRUE(pair.a.run(send_of(pair.a, bytes)));
        EXPECT_TRUE(succeeded(pair.b.wait_receive()));
        EXPECT_TRUE(pair.b.memory->holds(0, bytes, 7));
    }
    Work read = write_of(pair.a, 1000);
    read.opcode = IBV_WR_RDMA_READ;
    pair.b.memory->fill(0, 1000, 8);
    const Corrupted damage(record(pair.a.qp.get()).scatter_send, 4096);
    EXPECT_TRUE(pair.a.run(read));
    EXPECT_TRUE(pair.a.memory->holds(0, 1000, 8));
}

// Which of its descriptors is a channel's the process knows itself.
TEST(CorruptSegmentChannels, NamesAnotherFile) {
    Endpoint::Options options;
    options.events = true;
    Pair pair(options);
    const SegmentFile segment;
    const int file = memfd_create("softhca-test", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    const std::uint32_t channel = segment->cqs[pair.a.send_cq->handle].channel;
    ASSERT_EQ(ibv_req_notify_cq(pair.a.send_cq.get(), 0), 0);
    {
        const Corrupted damage(segment->channels[channel].write_fd, file);
        EXPECT_TRUE(pair.a.run(write_of(pair.a)));
    }
    EXPECT_EQ(lseek(file, 0, SEEK_END), 0) << "an event was written into a file of the program";
    close(file);
    pollfd waiting{pair.a.channel->fd, POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, 10'000), 1);
    ibv_cq* cq = nullptr;
    void* its_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(pair.a.channel.get(), &cq, &its_context), 0);
    EXPECT_EQ(cq, pair.a.send_cq.get());
    ibv_ack_cq_events(cq, 1);
}

// A queue that is said to be not shared, and to lie where the program has other things.
TEST_F(CorruptSegment, SaysThatAQueueLiesElsewhere) {
    const std::vector<std::uint8_t> before(1 << 20, 0x5a);
    std::vector<std::uint8_t> others = before;
    device::QueueMemory elsewhere = record(pair.a.send_cq.get()).buffer;
    elsewhere.offset = device::kNotShared;
    elsewhere.address = reinterpret_cast<std::uintptr_t>(others.data());
    {
        const Corrupted damage(record(pair.a.send_cq.get()).buffer, elsewhere);
        ASSERT_EQ(pair.a.post(write_of(pair.a)), 0);
        EXPECT_FALSE(poll_for(pair.a.send_cq.get(), milliseconds(20)));
    }
    {
        const Corrupted damage(record(pair.b.qp.get()).record, elsewhere);
        EXPECT_EQ(pair.a.post(send_of(pair.a)), 0);
    }
    EXPECT_EQ(others, before);
}

TEST_F(CorruptSegment, SaysThatARegionLiesElsewhere) {
    std::vector<std::uint8_t> secret(1 << 16, 0x5a);
    std::memset(pair.b.memory->data(), 0, pair.b.memory->size());
    device::MemoryRegion& region = record(pair.a.memory->mr());
    const Corrupted nothing_shared(region.extents.count, 0);
    const Corrupted damage(region.address, reinterpret_cast<std::uintptr_t>(secret.data()));
    ASSERT_EQ(pair.a.post(write_of(pair.a, 4096)), 0);
    EXPECT_TRUE(has_status(pair.a.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
    EXPECT_TRUE(pair.b.memory->untouched(0, 4096, 0));
}

TEST_F(CorruptSegment, SaysThatARegionIsOfAnotherProcess) {
    for (const std::uint32_t slot : {kFar, device::kNone, device::kMaxProcesses}) {
        Pair own;
        const Corrupted damage(record(own.a.memory->mr()).head.process, slot);
        ASSERT_EQ(own.a.post(write_of(own.a, 4096)), 0);
        EXPECT_TRUE(has_status(own.a.wait_send(), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
    }
}

TEST_F(CorruptSegment, SaysThatARegionHasMoreExtents) {
    Memory memory(pair.a.pd.get(), 8192);
    const Corrupted damage(record(memory.mr()).extents.count, ~0u);
    memory.deregister();
}

TEST_F(CorruptSegment, SaysThatThereAreMoreProcesses) {
    const Corrupted damage(segment->processes_high, ~0u);
    for (int i = 0; i < 20; ++i) {  // the engine's thread looks at them
        EXPECT_TRUE(pair.a.run(write_of(pair.a, 40'000)));
        std::this_thread::sleep_for(milliseconds(5));
    }
}

// In a process of its own: ibv_destroy_qp of an opened QP crashes in libmlx5 44 (see xrc_test.cc).
TEST(CorruptSegmentXrc, NamesATargetThatThereIsNot) {
    Child child([](Channel&) {
        Endpoint::Options options;
        options.transport = Transport::kXrc;
        Endpoint e(options);
        const SegmentFile segment;
        ibv_qp_open_attr attributes = {};
        attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        attributes.qp_num = e.target->qp_num;
        attributes.xrcd = e.xrcd.get();
        attributes.qp_type = IBV_QPT_XRC_RECV;
        ibv_qp* const opened = check(ibv_open_qp(e.context.get(), &attributes), "ibv_open_qp");
        const Corrupted damage(segment->qps[opened->handle].alias_of, kFar);
        ibv_qp_attr asked{};
        ibv_qp_init_attr made{};
        EXPECT_NE(ibv_query_qp(opened, &asked, IBV_QP_STATE, &made), 0);
        asked.qp_state = IBV_QPS_ERR;
        EXPECT_NE(ibv_modify_qp(opened, &asked, IBV_QP_STATE), 0);
        static_cast<void>(e.xrcd.release());  // in use by it
    });
    child.expect_success();
}

TEST(CorruptSegmentXrc, SaysThatThereAreMoreDomains) {
    const Owned<ibv_context> context = open_device();
    const SegmentFile segment;
    const int file = memfd_create("softhca-test", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    ibv_xrcd_init_attr wanted = {};
    wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    wanted.fd = file;
    wanted.oflags = O_CREAT;
    const Corrupted damage(segment->xrcds.high, ~0u);
    EXPECT_TRUE(Owned<ibv_xrcd>(ibv_open_xrcd(context.get(), &wanted)));
    close(file);
}

}  // namespace
}  // namespace softhca::test
