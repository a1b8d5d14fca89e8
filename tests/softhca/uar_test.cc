// SPDX-License-Identifier: BSD-2-Clause
// Which QP rings which register: the placement of QPs on UAR pages and uUARs by the kernel that
// this run models (SOFTHCA_UAR). With the current one libmlx5 allocates pages on demand: dedicated
// uUARs first, then shared ones, least used first. The kernel of 2018 has sixteen uUARs on eight
// pages: the low-latency ones first, then the medium ones in turn (ICPADS'18, appendix B). Both are
// tested with the environment variables of libmlx5, thread domains, and the limits. QPs are
// identified by the register addresses that mlx5dv reports.

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "shown.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

struct Register {
    std::uint64_t page;
    std::uint64_t offset;
    std::uint32_t size;
};

Register register_of(ibv_qp* qp) {
    const mlx5dv_qp layout = shown(qp);
    const auto address = reinterpret_cast<std::uint64_t>(layout.bf.reg);
    return {address & ~0xfffULL, address & 0xfff, layout.bf.size};
}

struct Base {
    Base()
        : context(open_device()),
          pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd")),
          cq(create_cq(context.get(), 64)) {}
    Owned<ibv_qp> qp(ibv_pd* domain = nullptr) const {
        ibv_qp_init_attr attributes = {};
        attributes.send_cq = attributes.recv_cq = cq.get();
        attributes.qp_type = IBV_QPT_RC;
        attributes.cap = {16, 16, 1, 1, 0};
        return Owned<ibv_qp>(
            check(ibv_create_qp(domain ? domain : pd.get(), &attributes), "ibv_create_qp"));
    }
    Owned<ibv_context> context;
    Owned<ibv_pd> pd;
    Owned<ibv_cq> cq;
};

// A thread domain with its parent domain; empty with errno when there is none.
struct ThreadDomain {
    explicit ThreadDomain(const Base& base) {
        ibv_td_init_attr none = {};
        td.reset(ibv_alloc_td(base.context.get(), &none));
        if (!td) return;
        ibv_parent_domain_init_attr attributes = {};
        attributes.pd = base.pd.get();
        attributes.td = td.get();
        pd.reset(check(ibv_alloc_parent_domain(base.context.get(), &attributes), "parent domain"));
    }
    Owned<ibv_td> td;
    Owned<ibv_pd> pd;
};

// Pages numbered by first appearance, so that placements can be compared: {page, register}.
using Places = std::vector<std::pair<std::size_t, std::uint64_t>>;
Places normalized(const std::vector<Register>& registers) {
    std::map<std::uint64_t, std::size_t> number;
    Places result;
    for (const Register& r : registers) {
        const auto page = number.emplace(r.page, number.size()).first->second;
        result.emplace_back(page, r.offset);
    }
    return result;
}

std::vector<Register> place(const Base& base, std::size_t count, std::vector<Owned<ibv_qp>>& qps) {
    std::vector<Register> registers;
    for (std::size_t i = 0; i < count; ++i) {
        qps.push_back(base.qp());
        registers.push_back(register_of(qps.back().get()));
    }
    return registers;
}

// libmlx5 on today's kernel: `low` dedicated uUARs, then total - low shared ones, both taken a page
// (two uUARs) at a time; then the least used, the oldest first.
Places expected_dynamic(std::size_t count, std::size_t total, std::size_t low) {
    const std::size_t dedicated = (low + 1) / 2 * 2;
    const std::size_t shared = (total - low + 1) / 2 * 2;
    std::vector<Register> registers;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t uuar = i < dedicated ? i : dedicated + (i - dedicated) % shared;
        registers.push_back({uuar / 2 * 4096, 0x800 + uuar % 2 * 0x200, 0});
    }
    return normalized(registers);
}

// The kernel's alloc_bfreg: low-latency uUARs are the last ones, 0 has no BlueFlame and is not
// given to QPs while there are others.
Places expected_static(std::size_t count, std::size_t total, std::size_t low) {
    const std::size_t medium = total - low - 1;
    std::vector<Register> registers;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t uuar = i < low      ? total - low + i
                                 : medium > 0 ? 1 + (i - low) % medium
                                              : 0;
        registers.push_back({uuar / 2 * 4096, 0x800 + uuar % 2 * 0x200, 0});
    }
    return normalized(registers);
}

Places expected(std::size_t count, std::size_t total, std::size_t low) {
    return static_uars() ? expected_static(count, total, low) : expected_dynamic(count, total, low);
}

TEST(Uars, EighteenQueuePairs) {
    const Base base;
    std::vector<Owned<ibv_qp>> qps;
    const auto registers = place(base, 18, qps);
    EXPECT_EQ(normalized(registers), expected(18, 16, 4));
    for (const Register& r : registers) {
        EXPECT_EQ(r.size, 256u) << "a BlueFlame buffer is half of a register of 512 bytes";
        EXPECT_TRUE(r.offset == 0x800 || r.offset == 0xa00);
    }
    const auto same = [&](std::size_t x, std::size_t y) {
        return registers[x - 1].page == registers[y - 1].page &&
               registers[x - 1].offset == registers[y - 1].offset;
    };
    // The paper's observation and today's.
    EXPECT_EQ(same(5, 16), static_uars());
    EXPECT_EQ(same(5, 17), !static_uars());
}

TEST(Uars, OfTwoContextsAreApart) {
    const Base first;
    const Base second;
    const auto one = first.qp();
    const auto two = second.qp();
    EXPECT_NE(register_of(one.get()).page, register_of(two.get()).page);
}

TEST(Uars, AreGivenBackByDestroyedQueuePairs) {
    const Base base;
    std::vector<Owned<ibv_qp>> qps;
    const auto before = place(base, 4, qps);
    for (int round = 0; round < 50; ++round) {
        qps.clear();
        std::vector<Owned<ibv_qp>> again;
        const auto after = place(base, 4, again);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> x;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> y;
        for (std::size_t i = 0; i < 4; ++i) {
            x.emplace_back(before[i].page, before[i].offset);
            y.emplace_back(after[i].page, after[i].offset);
        }
        std::sort(x.begin(), x.end());
        std::sort(y.begin(), y.end());
        ASSERT_EQ(x, y) << "the low-latency uUARs are free again";
        qps = std::move(again);
    }
}

struct Split {
    int total;
    int low;
};

class UarEnvironment : public testing::TestWithParam<Split> {};

TEST_P(UarEnvironment, TotalAndLowLatencyAreHonoured) {
    with_environment({{"MLX5_TOTAL_UUARS", std::to_string(GetParam().total)},
                      {"MLX5_NUM_LOW_LAT_UUARS", std::to_string(GetParam().low)}},
                     [] {
                         const Base base;
                         std::vector<Owned<ibv_qp>> qps;
                         const auto total = static_cast<std::size_t>(GetParam().total);
                         // libmlx5: all above twelve medium ones are low-latency.
                         const auto low = static_cast<std::size_t>(
                             std::max(GetParam().low, GetParam().total - 12));
                         const auto registers = place(base, 3 * total, qps);
                         EXPECT_EQ(normalized(registers), expected(3 * total, total, low));
                     });
}
INSTANTIATE_TEST_SUITE_P(Splits, UarEnvironment,
                         testing::Values(Split{16, 4}, Split{8, 2}, Split{4, 1}, Split{32, 4},
                                         Split{16, 8}, Split{64, 60}, Split{6, 3}),
                         [](const auto& info) {
                             return std::to_string(info.param.total) + "Low" +
                                    std::to_string(info.param.low);
                         });

TEST(UarEnvironments, ImpossibleSplitIsRefused) {
    for (const char* total : {"1000000", "0", "-3"}) {
        with_environment({{"MLX5_TOTAL_UUARS", total}}, [&] {
            EXPECT_THROW(open_device(), VerbsFailure) << "MLX5_TOTAL_UUARS=" << total;
        });
    }
    if (!static_uars()) return;
    with_environment({{"MLX5_TOTAL_UUARS", "16"}, {"MLX5_NUM_LOW_LAT_UUARS", "16"}},
                     [] { EXPECT_THROW(open_device(), VerbsFailure) << "one uUAR must be left"; });
}

// Without BlueFlame, today's libmlx5 puts all QPs on one uncached page; that of 2018 maps the same
// uUARs uncached.
TEST(UarEnvironments, ShutUpBlueFlame) {
    with_environment({{"MLX5_SHUT_UP_BF", "1"}}, [] {
        const Base base;
        std::vector<Owned<ibv_qp>> qps;
        const auto registers = place(base, 18, qps);
        if (static_uars()) {
            EXPECT_EQ(normalized(registers), expected_static(18, 16, 4));
            return;
        }
        for (const Register& r : registers) {
            EXPECT_EQ(r.page, registers[0].page);
            EXPECT_EQ(r.offset, registers[0].offset);
            EXPECT_EQ(r.size, 0u);
        }
        // A thread domain has a uUAR of its own all the same.
        const ThreadDomain domain(base);
        ASSERT_TRUE(domain.td);
        EXPECT_NE(register_of(base.qp(domain.pd.get()).get()).page, registers[0].page);
    });
}

TEST(UarEnvironments, PreferBlueFlameDoesNotMovePlaces) {
    with_environment({{"MLX5_POST_SEND_PREFER_BF", "0"}}, [] {
        const Base base;
        std::vector<Owned<ibv_qp>> qps;
        EXPECT_EQ(normalized(place(base, 18, qps)), expected(18, 16, 4));
    });
}

// Thread domains take pages in pairs; QPs of one domain share its register and no other QP does.
TEST(ThreadDomains, ComeInPairsOnAPage) {
    const Base base;
    std::vector<Owned<ibv_qp>> plain;
    const auto others = place(base, 18, plain);
    std::vector<std::unique_ptr<ThreadDomain>> domains;
    std::vector<Owned<ibv_qp>> qps;
    std::vector<Register> registers;
    for (int i = 0; i < 6; ++i) {
        domains.push_back(std::make_unique<ThreadDomain>(base));
        ASSERT_TRUE(domains.back()->td);
        qps.push_back(base.qp(domains.back()->pd.get()));
        registers.push_back(register_of(qps.back().get()));
        const auto second = base.qp(domains.back()->pd.get());
        EXPECT_EQ(register_of(second.get()).page, registers.back().page);
        EXPECT_EQ(register_of(second.get()).offset, registers.back().offset);
    }
    EXPECT_EQ(normalized(registers),
              (Places{{0, 0x800}, {0, 0xa00}, {1, 0x800}, {1, 0xa00}, {2, 0x800}, {2, 0xa00}}));
    for (const Register& mine : registers)
        for (const Register& other : others)
            EXPECT_NE(mine.page, other.page);
    qps.clear();
}

TEST(ThreadDomains, CarryTraffic) {
    Endpoint a;
    ibv_td_init_attr none = {};
    const Owned<ibv_td> td(check(ibv_alloc_td(a.context.get(), &none), "ibv_alloc_td"));
    ibv_parent_domain_init_attr attributes = {};
    attributes.pd = a.pd.get();
    attributes.td = td.get();
    const Owned<ibv_pd> parent(
        check(ibv_alloc_parent_domain(a.context.get(), &attributes), "parent domain"));
    ibv_qp_init_attr qp = {};
    qp.send_cq = a.send_cq.get();
    qp.recv_cq = a.receive_cq.get();
    qp.qp_type = IBV_QPT_RC;
    qp.cap = {64, 64, 2, 2, 64};
    a.qp.reset();
    a.qp.reset(check(ibv_create_qp(parent.get(), &qp), "ibv_create_qp"));
    Endpoint b({}, &a);
    a.connect(b.address());
    b.connect(a.address());
    for (std::uint32_t i = 0; i < 1000; ++i) {
        a.memory->fill(0, 300, i);
        Work work;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.sges = {a.memory->sge(0, 300)};
        ASSERT_TRUE(a.run(work));
        ASSERT_TRUE(b.memory->holds(0, 300, i));
    }
    a.qp.reset();
}

// A context of 2018 has 512 dynamic pages; today's only the device's.
TEST(UarLimits, ThreadDomainsOfOneContext) {
    if (!static_uars()) GTEST_SKIP() << "only the device limits today's kernel";
    const Base base;
    std::vector<std::unique_ptr<ThreadDomain>> domains;
    for (;;) {
        auto domain = std::make_unique<ThreadDomain>(base);
        if (!domain->td) break;
        domains.push_back(std::move(domain));
        ASSERT_LE(domains.size(), 1024u);
    }
    EXPECT_TRUE(errno == ENOMEM || errno == EINVAL || errno == ENOSPC) << std::strerror(errno);
    EXPECT_EQ(domains.size(), 1024u) << "two on each of 512 pages";
    const Base other;
    EXPECT_TRUE(ThreadDomain(other).td) << "the limit is the context's";
}

// The device has 8192 UAR pages for all processes. Exhaustion is ENOMEM, and what is freed can be
// had again.
TEST(UarLimits, PagesOfTheDevice) {
    std::vector<std::unique_ptr<Base>> contexts;
    std::vector<std::unique_ptr<ThreadDomain>> domains;
    std::size_t total = 0;
    int error = 0;
    while (total < 20000) {
        try {
            contexts.push_back(std::make_unique<Base>());
        } catch (const VerbsFailure&) {
            error = errno;
            break;
        }
        std::size_t here = 0;
        for (;; ++here, ++total) {
            if (total >= 20000) break;
            errno = 0;
            auto domain = std::make_unique<ThreadDomain>(*contexts.back());
            if (!domain->td) {
                error = errno;
                break;
            }
            domains.push_back(std::move(domain));
        }
        if (here < (static_uars() ? 1024u : 1u)) break;
    }
    EXPECT_EQ(error, ENOMEM) << std::strerror(error);
    // Each context of 2018 has eight pages for itself, today's one.
    const std::size_t pages = total / 2 + contexts.size() * (static_uars() ? 8 : 1);
    EXPECT_GE(pages, 8100u);
    EXPECT_LE(pages, 8192u + 16);
    const Base* last = contexts.front().get();
    domains.erase(domains.end() - 64, domains.end());
    domains.erase(domains.begin(), domains.begin() + 64);
    EXPECT_TRUE(ThreadDomain(*last).td);
    domains.clear();
    EXPECT_TRUE(ThreadDomain(*last).td);
}

}  // namespace
}  // namespace softhca::test
