// SPDX-License-Identifier: BSD-2-Clause
// Each call of RMA and of atomics, through libfabric's interface: that its arguments arrive where
// they should, and that wrong ones are refused.
#include "tests/provider/fi_transfers.h"

namespace heddle::test {
namespace {

TEST_F(Memory, WritesAndReads) {
    std::uint64_t value = 1, other = 2;
    must([&] { return fi_write(a, &value, 8, nullptr, pair.to_b, at(0), key, &context); });
    expect_done();
    EXPECT_TRUE(entry.flags & FI_WRITE);
    expect_value(0, 1);
    iovec buffers[2] = {{&value, 8}, {&other, 8}};
    must([&] { return fi_writev(a, buffers, nullptr, 2, pair.to_b, at(1), key, &context); });
    expect_done();
    expect_value(2, 2);
    must([&] { return fi_inject_write(a, &other, 8, pair.to_b, at(3), key); });
    expect_value(3, 2);
    fi_rma_iov remote[2] = {{at(10), 8, key}, {at(20), 8, key}};
    fi_msg_rma message{};
    message.msg_iov = buffers;
    message.iov_count = 2;
    message.addr = pair.to_b;
    message.rma_iov = remote;
    message.rma_iov_count = 2;
    message.context = &context;
    must([&] { return fi_writemsg(a, &message, FI_DELIVERY_COMPLETE); });
    expect_done();
    expect_value(10, 1);
    expect_value(20, 2);

    std::uint64_t got[2] = {};
    must([&] { return fi_read(a, got, 16, nullptr, pair.to_b, at(1), key, &context); });
    expect_done();
    EXPECT_TRUE(entry.flags & FI_READ);
    EXPECT_EQ(got[0], 1u);
    EXPECT_EQ(got[1], 2u);
    iovec into[2] = {{&got[1], 8}, {&got[0], 8}};
    must([&] { return fi_readv(a, into, nullptr, 2, pair.to_b, at(1), key, &context); });
    expect_done();
    EXPECT_EQ(got[0], 2u);
    message.msg_iov = into;
    must([&] { return fi_readmsg(a, &message, 0); });
    expect_done();
    EXPECT_EQ(got[1], 1u);
}

TEST_F(Memory, WritesWithData) {
    std::uint64_t value = 5;
    must([&] { return fi_writedata(a, &value, 8, nullptr, 99, pair.to_b, at(0), key, &context); });
    expect_done();
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_TRUE(entry.flags & FI_REMOTE_WRITE);
    EXPECT_EQ(entry.op_context, nullptr);
    EXPECT_EQ(entry.data, 99u);
    EXPECT_EQ(entry.len, 8u);
    EXPECT_EQ(target[0], 5u);
    must([&] { return fi_inject_writedata(a, &value, 8, 100, pair.to_b, at(1), key); });
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_EQ(entry.data, 100u);
    EXPECT_EQ(entry.len, 8u);
    EXPECT_EQ(target[1], 5u);
    const std::vector<std::uint64_t> values(40, 6);
    iovec buffers[2] = {{const_cast<std::uint64_t*>(values.data()), 160},
                        {const_cast<std::uint64_t*>(values.data()), 80}};
    fi_rma_iov remote{at(2), 240, key};
    fi_msg_rma message{};
    message.msg_iov = buffers;
    message.iov_count = 2;
    message.addr = pair.to_b;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.data = 101;
    must([&] { return fi_writemsg(a, &message, FI_REMOTE_CQ_DATA); });
    ASSERT_EQ(next(received, entry, sent), 0);
    EXPECT_EQ(entry.data, 101u);
    EXPECT_EQ(entry.len, 240u);
    EXPECT_EQ(target[31], 6u);
}

// As with other providers; fabtests' fi_rdm_bw_mt gives the handle.
TEST_F(Memory, HandleIsItsDescriptor) {
    target[0] = 7;
    EXPECT_EQ(fi_mr_desc(region.get()), region.get());
    must([&] {
        return fi_read(a, target.data() + 32, 256, region.get(), pair.to_b, at(0), key, &context);
    });
    expect_done();
    EXPECT_EQ(target[32], 7u);
}

TEST_F(Memory, Atomics) {
    std::uint64_t value = 5, result = 0, compare = 5;
    must([&] {
        return fi_atomic(a, &value, 1, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, &context);
    });
    expect_done();
    expect_value(0, 5);
    must([&] { return fi_inject_atomic(a, &value, 1, pair.to_b, at(0), key, FI_UINT64, FI_SUM); });
    expect_value(0, 10);
    must([&] {
        return fi_fetch_atomic(a, &value, 1, nullptr, &result, nullptr, pair.to_b, at(0), key,
                               FI_UINT64, FI_SUM, &context);
    });
    expect_done();
    EXPECT_EQ(result, 10u);
    must([&] {
        return fi_fetch_atomic(a, nullptr, 1, nullptr, &result, nullptr, pair.to_b, at(0), key,
                               FI_UINT64, FI_ATOMIC_READ, &context);
    });
    expect_done();
    EXPECT_EQ(result, 15u);
    compare = 15;
    must([&] {
        return fi_compare_atomic(a, &value, 1, nullptr, &compare, nullptr, &result, nullptr,
                                 pair.to_b, at(0), key, FI_UINT64, FI_CSWAP, &context);
    });
    expect_done();
    EXPECT_EQ(result, 15u);
    expect_value(0, 5);
}

// What a region was not registered for is refused, and the connection stays.
TEST_F(Memory, AtomicsNeedTheAccess) {
    std::uint64_t value = 5, result = 0, there = 1;
    struct Attempt {
        std::uint64_t access;
        bool adds, reads, fetches;  // are possible
    };
    for (const Attempt each :
         {Attempt{0, false, false, false}, Attempt{FI_SEND | FI_RECV, false, false, false},
          Attempt{FI_REMOTE_READ, false, true, false}, Attempt{FI_REMOTE_WRITE, true, false, false},
          Attempt{FI_REMOTE_READ | FI_REMOTE_WRITE, true, true, true}}) {
        fid_mr* region = nullptr;
        ASSERT_EQ(fi_mr_reg(world.domain.get(), &there, sizeof there, each.access, 0, 0, 0, &region,
                            nullptr),
                  0);
        const auto address = reinterpret_cast<std::uint64_t>(&there);
        const std::uint64_t its_key = fi_mr_key(region);
        must([&] {
            return fi_atomic(a, &value, 1, nullptr, pair.to_b, address, its_key, FI_UINT64, FI_SUM,
                             &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.adds ? 0 : FI_EACCES) << each.access;
        must([&] {
            return fi_fetch_atomic(a, nullptr, 1, nullptr, &result, nullptr, pair.to_b, address,
                                   its_key, FI_UINT64, FI_ATOMIC_READ, &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.reads ? 0 : FI_EACCES) << each.access;
        must([&] {
            return fi_fetch_atomic(a, &value, 1, nullptr, &result, nullptr, pair.to_b, address,
                                   its_key, FI_UINT64, FI_SUM, &context);
        });
        EXPECT_EQ(next(sent, entry, received), each.fetches ? 0 : FI_EACCES) << each.access;
        EXPECT_EQ(fi_close(&region->fid), 0);
    }
}

TEST_F(Memory, AtomicsOfSeveralBuffers) {
    std::uint32_t first[2] = {1, 2}, second[3] = {3, 4, 5}, results[5] = {};
    auto* there = reinterpret_cast<std::uint32_t*>(target.data());
    for (std::uint32_t i = 0; i < 5; ++i)
        there[i] = 100 * i;
    const fi_ioc operands[2] = {{{first}, 2}, {{second}, 3}};
    fi_ioc into[2] = {{{results}, 1}, {{results + 1}, 4}};
    must([&] {
        return fi_fetch_atomicv(a, operands, nullptr, 2, into, nullptr, 2, pair.to_b, at(0), key,
                                FI_UINT32, FI_SUM, &context);
    });
    expect_done();
    for (std::uint32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(results[i], 100 * i);
        EXPECT_EQ(there[i], 100 * i + i + 1);
    }
}

TEST_F(Memory, AtomicsOfTheSizeThatMayBeInjected) {
    const std::size_t most = world.info->tx_attr->inject_size / sizeof(std::uint64_t);
    const std::vector<std::uint64_t> values(most + 1, 5);
    const auto inject = [&](std::size_t count) {
        return fi_inject_atomic(a, values.data(), count, pair.to_b, at(0), key, FI_UINT64, FI_SUM);
    };
    EXPECT_EQ(inject(most + 1), -FI_EMSGSIZE);
    must([&] { return inject(most); });
    expect_value(most - 1, 5);
}

TEST_F(Memory, WhatCannotBe) {
    std::uint64_t values[64] = {};
    const std::vector<char> large(world.info->tx_attr->inject_size + 1);
    EXPECT_EQ(fi_tinject(a, large.data(), large.size(), pair.to_b, 0), -FI_EMSGSIZE);
    EXPECT_EQ(fi_inject_write(a, large.data(), large.size(), pair.to_b, at(0), key), -FI_EMSGSIZE);
    EXPECT_EQ(fi_atomic(a, values, 0, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
              -FI_EINVAL);
    EXPECT_EQ(
        fi_atomic(a, values, 100'000, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
        -FI_EMSGSIZE);
    EXPECT_EQ(fi_atomic(a, values, 1, nullptr, pair.to_b, at(0), key, FI_UINT64, FI_CSWAP, nullptr),
              -FI_EOPNOTSUPP);
    // Counts and lengths whose sum is 1 in 64 bits.
    const fi_ioc operands[2] = {{{values}, SIZE_MAX}, {{values}, 2}};
    EXPECT_EQ(
        fi_atomicv(a, operands, nullptr, 2, pair.to_b, at(0), key, FI_UINT64, FI_SUM, nullptr),
        -FI_EMSGSIZE);
    iovec endless[2] = {{values, SIZE_MAX}, {values, 2}};
    fi_msg injected{};
    injected.msg_iov = endless;
    injected.iov_count = 2;
    injected.addr = pair.to_b;
    EXPECT_EQ(fi_sendmsg(a, &injected, FI_INJECT), -FI_EMSGSIZE);
    iovec buffers[9] = {};
    EXPECT_EQ(fi_tsendv(a, buffers, nullptr, 9, pair.to_b, 0, nullptr), -FI_EINVAL);
    fi_msg message{};
    message.addr = pair.to_b;
    EXPECT_EQ(fi_sendmsg(a, &message, FI_FENCE), -FI_EBADFLAGS);
    EXPECT_EQ(fi_recvmsg(b, &message, FI_PEEK), -FI_EBADFLAGS);
}

}  // namespace
}  // namespace heddle::test
