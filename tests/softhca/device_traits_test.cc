// SPDX-License-Identifier: BSD-2-Clause
// What SOFTHCA_DEVICE takes from a device is neither reported nor given; without it both are. The
// variants softhca.TRAIT.device_traits run these cases with a trait each.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "chosen_trait.h"
#include "shown.h"
#include "softhca/engine/counters.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

ibv_device_attr attributes_of(ibv_context* context) {
    ibv_device_attr attributes = {};
    EXPECT_EQ(ibv_query_device(context, &attributes), 0);
    return attributes;
}

// Null, and errno, where the device has none like that.
Owned<ibv_qp> small_queue_pair(ibv_pd* pd, ibv_cq* cq, std::uint32_t sges = 1,
                               std::uint32_t inline_data = 0) {
    ibv_qp_init_attr wanted = {};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.cap = {.max_send_wr = 1,
                  .max_recv_wr = 1,
                  .max_send_sge = sges,
                  .max_recv_sge = sges,
                  .max_inline_data = inline_data};
    wanted.qp_type = IBV_QPT_RC;
    return Owned<ibv_qp>(ibv_create_qp(pd, &wanted));
}

// After a NAK with a timer of 655 ms (IBTA table 45, code 0) the receive is posted at once.
TEST(DeviceTraits, RnrTimers) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kTimer(655);
    using Query = int (*)(std::uint32_t, softhca_counters*);
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "softhca_query_qp"));
    ASSERT_NE(query, nullptr);
    Endpoint::Options options;
    options.srq = true;
    options.send_sges = options.receive_sges = 1;
    options.min_rnr_timer = 0;
    const auto wait = [&] {
        Pair pair(options);
        Work message;
        message.sges = {pair.a.memory->sge(0, 64)};
        const std::vector<ibv_sge> room = {pair.b.memory->sge(0, 64)};
        EXPECT_EQ(pair.b.post_receive(0, room), 0);  // shows the device which process posts
        EXPECT_TRUE(pair.a.run(message));
        EXPECT_TRUE(succeeded(pair.b.wait_receive()));
        EXPECT_EQ(pair.a.post(message), 0);
        softhca_counters counters{};
        do {
            std::this_thread::yield();
            EXPECT_EQ(query(pair.a.qp->qp_num, &counters), 0);
        } while (counters.rnr_naks == 0);
        const auto begin = Clock::now();
        EXPECT_EQ(pair.b.post_receive(1, room), 0);
        EXPECT_TRUE(succeeded(pair.a.wait_send()));
        return Clock::now() - begin;
    };
    if (chosen(DeviceTrait::kRnrTimers)) {
        EXPECT_GT(wait(), kTimer / 2);
        return;
    }
    // A busy machine may be late, but not each time.
    for (int i = 0; i < 10; ++i)
        if (wait() < kTimer / 2) return;
    FAIL() << "the post does not end the wait";
}

TEST(DeviceTraits, NoDc) {
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "a PD"));
    const Owned<ibv_cq> cq = create_cq(context.get(), 16);
    const Owned<ibv_srq> srq = create_srq(pd.get(), 16);
    ibv_qp_init_attr_ex wanted{};
    wanted.qp_type = IBV_QPT_DRIVER;
    wanted.send_cq = wanted.recv_cq = cq.get();
    wanted.srq = srq.get();
    wanted.pd = pd.get();
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5dv_qp_init_attr driver{};
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    const Owned<ibv_qp> target(mlx5dv_create_qp(context.get(), &wanted, &driver));
    EXPECT_EQ(target == nullptr ? errno : 0, chosen(DeviceTrait::kNoDc) ? EOPNOTSUPP : 0);
}

TEST(DeviceTraits, NoXrc) {
    const bool lacking = chosen(DeviceTrait::kNoXrc);
    const Owned<ibv_context> context = open_device();
    const ibv_device_attr attributes = attributes_of(context.get());
    EXPECT_EQ((attributes.device_cap_flags & IBV_DEVICE_XRC) == 0, lacking);
    ibv_xrcd_init_attr wanted = {};
    wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    wanted.fd = -1;
    wanted.oflags = O_CREAT;
    errno = 0;
    const Owned<ibv_xrcd> domain(ibv_open_xrcd(context.get(), &wanted));
    EXPECT_EQ(domain == nullptr, lacking);
    if (lacking) {
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
}

TEST(DeviceTraits, NoAtomics) {
    const bool lacking = chosen(DeviceTrait::kNoAtomics);
    const Owned<ibv_context> context = open_device();
    EXPECT_EQ(attributes_of(context.get()).atomic_cap, lacking ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA);
    const Owned<ibv_pd> pd(ibv_alloc_pd(context.get()));
    const Owned<ibv_cq> cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
    const Owned<ibv_qp> qp = small_queue_pair(pd.get(), cq.get());
    ASSERT_TRUE(qp);
    ibv_qp_attr to_init = {};
    to_init.qp_state = IBV_QPS_INIT;
    to_init.port_num = 1;
    to_init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    constexpr int kMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(ibv_modify_qp(qp.get(), &to_init, kMask), lacking ? EOPNOTSUPP : 0);
    to_init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (lacking) {
        EXPECT_EQ(ibv_modify_qp(qp.get(), &to_init, kMask), 0) << "without them it can";
    }
}

// Rounds of making and destroying: in all of them the number is the same, or in none.
TEST(DeviceTraits, ReuseNumbersOfQueuePairs) {
    const bool again = chosen(DeviceTrait::kReuseNumbers);
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(ibv_alloc_pd(context.get()));
    const Owned<ibv_cq> cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
    std::set<std::uint32_t> numbers;
    constexpr unsigned kRounds = 8;
    for (unsigned round = 0; round < kRounds; ++round) {
        const Owned<ibv_qp> qp = small_queue_pair(pd.get(), cq.get());
        ASSERT_TRUE(qp);
        EXPECT_TRUE(numbers.insert(qp->qp_num).second || again) << "round " << round;
    }
    EXPECT_EQ(numbers.size(), again ? 1U : kRounds);
}

TEST(DeviceTraits, ReuseNumbersOfSharedReceiveQueues) {
    if (chosen(DeviceTrait::kNoXrc)) GTEST_SKIP() << "only XRC shows the number of an SRQ";
    const bool again = chosen(DeviceTrait::kReuseNumbers);
    std::set<std::uint32_t> numbers;
    constexpr unsigned kRounds = 8;
    for (unsigned round = 0; round < kRounds; ++round) {
        EndpointOptions options;
        options.transport = Transport::kXrc;
        options.send_sges = options.receive_sges = 1;
        options.inline_size = 0;
        const Endpoint endpoint(options);
        std::uint32_t number = 0;
        ASSERT_EQ(ibv_get_srq_num(endpoint.srq.get(), &number), 0);
        numbers.insert(number);
    }
    EXPECT_EQ(numbers.size(), again ? 1U : kRounds);
}

// errno of making such a queue pair; 0: it was made.
int queue_pair_error(ibv_context* context, std::uint32_t sges, std::uint32_t inline_data) {
    const Owned<ibv_pd> pd(ibv_alloc_pd(context));
    const Owned<ibv_cq> cq(ibv_create_cq(context, 4, nullptr, nullptr, 0));
    return small_queue_pair(pd.get(), cq.get(), sges, inline_data) ? 0 : errno;
}

TEST(DeviceTraits, FewSges) {
    const bool few = chosen(DeviceTrait::kFewSges);
    const Owned<ibv_context> context = open_device();
    const ibv_device_attr attributes = attributes_of(context.get());
    EXPECT_EQ(attributes.max_sge == 4, few);
    EXPECT_EQ(attributes.max_srq_sge == 4, few);
    if (chosen(DeviceTrait::kSmallInline)) return;  // five make an entry that is too long
    EXPECT_EQ(queue_pair_error(context.get(), 4, 0), 0);
    EXPECT_EQ(queue_pair_error(context.get(), 5, 0), few ? EINVAL : 0);
}

TEST(DeviceTraits, SmallInline) {
    const Owned<ibv_context> context = open_device();
    EXPECT_EQ(queue_pair_error(context.get(), 1, 60), 0);
    EXPECT_EQ(queue_pair_error(context.get(), 1, 256),
              chosen(DeviceTrait::kSmallInline) ? EINVAL : 0);
}

TEST(DeviceTraits, NoThreadDomains) {
    const Owned<ibv_context> context = open_device();
    ibv_td_init_attr nothing = {};
    const Owned<ibv_td> domain(ibv_alloc_td(context.get(), &nothing));
    EXPECT_EQ(domain == nullptr, chosen(DeviceTrait::kNoThreadDomains));
    EXPECT_EQ(queue_pair_error(context.get(), 1, 0), 0) << "they get registers all the same";
}

// A registration, and what the device reads by it into the peer's memory.
class Source {
public:
    Source(Pair& pair, std::uint8_t* at, std::size_t bytes, int access)
        : pair_(pair), at_(at), mr_(ibv_reg_mr(pair.a.pd.get(), at, bytes, access)) {
        EXPECT_TRUE(mr_);
    }
    int device_sees() {
        Work work = write_of(pair_.a, 1);
        work.sges = {{reinterpret_cast<std::uint64_t>(at_), 1, mr_->lkey}};
        EXPECT_TRUE(pair_.a.run(work));
        return pair_.b.memory->data()[0];
    }

private:
    Pair& pair_;
    std::uint8_t* const at_;
    const Owned<ibv_mr> mr_;
};

TEST(DeviceTraits, Pinned) {
    const bool pinned = chosen(DeviceTrait::kPinned);
    constexpr std::size_t kBytes = 64 << 10;
    constexpr int kProtection = PROT_READ | PROT_WRITE, kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
    Endpoint::Options options;
    options.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;  // for kNoAtomics
    options.inline_size = 0;                                               // for kSmallInline
    Pair pair(options);
    void* const memory = mmap(nullptr, kBytes, kProtection, kFlags, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* const at = static_cast<std::uint8_t*>(memory);
    // The kind device takes further registrations for memory of one operation each.
    for (int i = 0; i < 20; ++i)
        Source(pair, at, kBytes, IBV_ACCESS_LOCAL_WRITE);
    {
        memset(at, 1, kBytes);
        Source source(pair, at, kBytes, IBV_ACCESS_LOCAL_WRITE);
        EXPECT_EQ(source.device_sees(), 1);
        ASSERT_EQ(mmap(at, kBytes, kProtection, kFlags | MAP_FIXED, -1, 0), memory);
        memset(at, 2, kBytes);
        EXPECT_EQ(source.device_sees(), pinned ? 1 : 2);
    }
    for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
        memset(at, 3, kBytes);
        Source source(pair, at, kBytes, kAllAccess);
        EXPECT_EQ(source.device_sees(), 3);
        const int error = madvise(at, kBytes, advice);
        EXPECT_EQ(error, 0);
        if (!memory_stays_private()) {
            EXPECT_EQ(at[0], 0);
        }
        at[0] = 4;
        EXPECT_EQ(source.device_sees(), pinned ? 3 : 4);
    }
    munmap(at, kBytes);
}

TEST(DeviceTraits, NoBlueFlame) {
    const bool lacking = chosen(DeviceTrait::kNoBlueFlame);
    Pair pair;
    EXPECT_EQ(shown(pair.a.qp.get()).bf.size == 0, lacking);
    Work work;
    work.sges = {pair.a.memory->sge(0, 16)};
    ASSERT_EQ(pair.b.post_receive(1, {pair.b.memory->sge(0, 64)}), 0);
    EXPECT_TRUE(pair.a.run(work));
}

// An atomic answers eight bytes, whatever its completion says: libmlx5 does not look there.
TEST(DeviceTraits, AtomicBytes) {
    Pair pair;
    const mlx5dv_cq queue = shown(pair.a.send_cq.get());
    if (chosen(DeviceTrait::kNoAtomics)) GTEST_SKIP() << "there are no atomics";
    Work work;
    work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    work.sges = {pair.a.memory->sge(0, 8)};
    work.remote = pair.a.peer.memory;
    work.rkey = pair.a.peer.rkey;
    ASSERT_EQ(pair.a.post(work), 0);
    const ibv_wc completion = pair.a.wait_send();
    ASSERT_TRUE(succeeded(completion));
    EXPECT_EQ(completion.byte_len, 8U);
    const auto* entry = reinterpret_cast<const mlx5_cqe64*>(
        static_cast<const std::uint8_t*>(queue.buf) + queue.cqe_size - sizeof(mlx5_cqe64));
    EXPECT_EQ(be32toh(entry->byte_cnt), chosen(DeviceTrait::kAtomicBytes) ? 0U : 8U);
}

// Makes an event for the next completion of `pair.b`, and says whether it came.
class Armed {
public:
    static Endpoint::Options options() {
        Endpoint::Options options;
        options.events = true;
        return options;
    }
    ibv_cq* cq() const { return pair_.b.receive_cq.get(); }
    void arm() { ASSERT_EQ(ibv_req_notify_cq(cq(), 0), 0); }
    bool event_comes() {
        Work work;
        work.sges = {pair_.a.memory->sge(0, 16)};
        if (pair_.b.post_receive(1, {pair_.b.memory->sge(0, 64)}) != 0 || !pair_.a.run(work) ||
            !succeeded(pair_.b.wait_receive()))
            fail("a message");
        pollfd waiting = {pair_.b.channel->fd, POLLIN, 0};
        return poll(&waiting, 1, 100) > 0;
    }
    void read_event() {
        ibv_cq* of = nullptr;
        void* user = nullptr;
        ASSERT_EQ(ibv_get_cq_event(pair_.b.channel.get(), &of, &user), 0);
        ibv_ack_cq_events(of, 1);
    }
    // So that libmlx5 does not see it, and goes on with the number that it has.
    void read_event_unseen() {
        ib_uverbs_comp_event_desc event;
        ASSERT_EQ(read(pair_.b.channel->fd, &event, sizeof event), ssize_t{sizeof event});
        ibv_ack_cq_events(cq(), 1);
    }

private:
    Pair pair_{options()};
};

TEST(DeviceTraits, ArmWithAnOldNumber) {
    const bool ignored = chosen(DeviceTrait::kArm);
    Armed queue;
    for (int event = 0; event < 6; ++event) {
        queue.arm();
        ASSERT_TRUE(queue.event_comes());
        queue.read_event();
    }
    queue.arm();
    ASSERT_TRUE(queue.event_comes());
    queue.read_event_unseen();
    queue.arm();
    EXPECT_EQ(queue.event_comes(), !ignored);
    if (!ignored) queue.read_event();
}

TEST(DeviceTraits, AnIgnoredArmLeavesTheOneBeforeItInForce) {
    Armed queue;
    const mlx5dv_cq memory = shown(queue.cq());
    const auto arm_with = [&memory](std::uint32_t number) {
        std::atomic_ref(memory.dbrec[1]).store(htobe32(number << 28), std::memory_order_release);
    };
    arm_with(1);
    EXPECT_EQ(queue.event_comes(), !chosen(DeviceTrait::kArm)) << "the next number is 0";
    if (!chosen(DeviceTrait::kArm)) queue.read_event();
    queue.arm();
    if (queue.event_comes()) {  // of the message before, which had none
        queue.read_event();
    }
    queue.arm();
    arm_with(3);
    EXPECT_TRUE(queue.event_comes());
    queue.read_event();
}

TEST(DeviceTraits, NoUserfaultfd) {
    constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY
    errno = 0;
    const long file = syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
    const int error = file < 0 ? errno : 0;
    EXPECT_EQ(error == EPERM, chosen(DeviceTrait::kNoUserfaultfd));
    if (file >= 0) close(static_cast<int>(file));
}

// What was registered before a fork, by queues that are made after it.
TEST(DeviceTraits, NoCopyOnFork) {
    const bool taken = chosen(DeviceTrait::kNoCopyOnFork);
    EXPECT_EQ(ibv_is_fork_initialized(), taken ? IBV_FORK_DISABLED : IBV_FORK_UNNEEDED);
    constexpr std::size_t kBytes = 64 << 10;
    Endpoint::Options options;
    options.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;  // for kNoAtomics
    options.inline_size = 0;                                               // for kSmallInline
    Endpoint first(options);
    const auto pages = [] {
        void* const memory =
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        memset(memory, 1, kBytes);
        return static_cast<std::uint8_t*>(memory);
    };
    std::uint8_t* const plain = pages();
    std::uint8_t* const kept = pages();
    ASSERT_EQ(madvise(kept, kBytes, MADV_DONTFORK), 0);
    const Owned<ibv_mr> of_plain(ibv_reg_mr(first.pd.get(), plain, kBytes, kAllAccess));
    const Owned<ibv_mr> of_kept(ibv_reg_mr(first.pd.get(), kept, kBytes, kAllAccess));
    ASSERT_TRUE(of_plain && of_kept);
    int wait[2];
    ASSERT_EQ(pipe(wait), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(wait[1]);
        char byte;
        _exit(plain[0] == 1 && read(wait[0], &byte, 1) == 0 ? 0 : 1);
    }
    plain[0] = kept[0] = 2;
    Endpoint from(options, &first), to(options, &first);
    from.connect(to.address());
    to.connect(from.address());
    const auto device_sees = [&](const ibv_mr* mr) {
        Work work = write_of(from, 1);
        work.sges = {{reinterpret_cast<std::uint64_t>(mr->addr), 1, mr->lkey}};
        EXPECT_TRUE(from.run(work));
        return to.memory->data()[0];
    };
    EXPECT_EQ(device_sees(of_plain.get()), taken ? 1 : 2);
    if (taken) {  // else softhca gives its children what it shares, whatever the advice
        EXPECT_EQ(device_sees(of_kept.get()), 2);
    }
    close(wait[1]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    close(wait[0]);
    munmap(plain, kBytes);
    munmap(kept, kBytes);
}

}  // namespace
}  // namespace softhca::test
