// SPDX-License-Identifier: BSD-2-Clause
// Everything that libfabric can open: opened, asked, refused while in use, closed.
#include "tests/provider/fi_support.h"

#include <rdma/fi_collective.h>

#include <cstddef>

namespace heddle::test {
namespace {

// The entries of a table of libfabric: its size, then functions.
template <class Table>
void expect_complete(const Table* table, const char* what) {
    ASSERT_NE(table, nullptr) << what;
    ASSERT_GE(table->size, sizeof(Table)) << what;
    const auto* entries = reinterpret_cast<void* const*>(table) + 1;
    const std::size_t count = (sizeof(Table) - sizeof(std::size_t)) / sizeof(void*);
    for (std::size_t i = 0; i < count; ++i)
        EXPECT_NE(entries[i], nullptr) << what << ", entry " << i;
}

TEST(Objects, TablesHaveNoHoles) {
    World world;
    Station station(world);
    const Opened<fid_cntr> counter = open_counter(world.domain.get());
    fi_eq_attr eq_attributes{};
    const auto eq = opened<fid_eq>("fi_eq_open", [&](fid_eq** out) {
        return fi_eq_open(world.fabric.get(), &eq_attributes, out, nullptr);
    });
    int memory = 0;
    const auto mr = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), &memory, sizeof memory, FI_REMOTE_READ, 0, 0, 0, out,
                         nullptr);
    });
    expect_complete(world.fabric->fid.ops, "fabric");
    expect_complete(world.fabric->ops, "fi_ops_fabric");
    expect_complete(world.domain->fid.ops, "domain");
    expect_complete(world.domain->ops, "fi_ops_domain");
    expect_complete(world.domain->mr, "fi_ops_mr");
    expect_complete(station.av->fid.ops, "av");
    expect_complete(station.av->ops, "fi_ops_av");
    expect_complete(station.transmit->fid.ops, "cq");
    expect_complete(station.transmit->ops, "fi_ops_cq");
    expect_complete(counter->fid.ops, "cntr");
    expect_complete(counter->ops, "fi_ops_cntr");
    expect_complete(eq->fid.ops, "eq");
    expect_complete(eq->ops, "fi_ops_eq");
    expect_complete(mr->fid.ops, "mr");
    expect_complete(station.ep->fid.ops, "ep");
    expect_complete(station.ep->ops, "fi_ops_ep");
    expect_complete(station.ep->cm, "fi_ops_cm");
    expect_complete(station.ep->msg, "fi_ops_msg");
    expect_complete(station.ep->tagged, "fi_ops_tagged");
    expect_complete(station.ep->rma, "fi_ops_rma");
    expect_complete(station.ep->atomic, "fi_ops_atomic");
    expect_complete(station.ep->collective, "fi_ops_collective");
}

TEST(Objects, WhatThereIsNotIsSaid) {
    World world;
    fid_pep* passive = nullptr;
    fid_ep* scalable = nullptr;
    fid_stx* shared = nullptr;
    EXPECT_EQ(fi_passive_ep(world.fabric.get(), world.info.get(), &passive, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_scalable_ep(world.domain.get(), world.info.get(), &scalable, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_stx_context(world.domain.get(), nullptr, &shared, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_srx_context(world.domain.get(), nullptr, &scalable, nullptr), -FI_ENOSYS);
    const Station station(world);
    EXPECT_EQ(fi_shutdown(station.ep.get(), 0), -FI_ENOSYS);
    EXPECT_EQ(fi_connect(station.ep.get(), nullptr, nullptr, 0), -FI_ENOSYS);
}

TEST(Objects, InUseIsBusy) {
    World world;
    Station station(world);
    Opened<fid_cntr> counter = open_counter(world.domain.get());
    EXPECT_EQ(fi_ep_bind(station.ep.get(), counter.handle(), FI_SEND), 0);
    EXPECT_EQ(world.domain.close(), -FI_EBUSY);
    EXPECT_EQ(station.av.close(), -FI_EBUSY);
    EXPECT_EQ(station.transmit.close(), -FI_EBUSY);
    EXPECT_EQ(station.receive.close(), -FI_EBUSY);
    EXPECT_EQ(counter.close(), -FI_EBUSY);
    station.enable();
    EXPECT_EQ(station.transmit.close(), -FI_EBUSY);
    EXPECT_EQ(station.ep.close(), 0);
    EXPECT_EQ(world.domain.close(), -FI_EBUSY);
    EXPECT_EQ(counter.close(), 0);
    EXPECT_EQ(station.receive.close(), 0);
    EXPECT_EQ(station.transmit.close(), 0);
    EXPECT_EQ(station.av.close(), 0);
    EXPECT_EQ(world.fabric.close(), 0);  // it goes with its domain
    EXPECT_EQ(world.domain.close(), 0);
}

TEST(Objects, BoundEventQueueIsBusy) {
    World world;
    fi_eq_attr attributes{};
    auto eq = opened<fid_eq>("fi_eq_open", [&](fid_eq** out) {
        return fi_eq_open(world.fabric.get(), &attributes, out, nullptr);
    });
    ASSERT_EQ(fi_domain_bind(world.domain.get(), eq.handle(), 0), 0);
    EXPECT_EQ(eq.close(), -FI_EBUSY);
    EXPECT_EQ(world.domain.close(), 0);
    EXPECT_EQ(eq.close(), 0);
}

TEST(Objects, RegionKeepsItsDomain) {
    World world;
    std::vector<char> memory(10000);
    auto mr = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), memory.data(), memory.size(),
                         FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, out, nullptr);
    });
    EXPECT_NE(fi_mr_key(mr.get()), FI_KEY_NOTAVAIL);
    EXPECT_NE(fi_mr_desc(mr.get()), nullptr);
    EXPECT_EQ(world.domain.close(), -FI_EBUSY);
    EXPECT_EQ(mr.close(), 0);
}

TEST(Objects, Regions) {
    World world;
    char memory[64];
    const iovec buffers[2] = {{memory, 32}, {memory + 32, 32}};
    fid_mr* mr = nullptr;
    EXPECT_EQ(fi_mr_regv(world.domain.get(), buffers, 2, FI_SEND, 0, 0, 0, &mr, nullptr),
              -FI_EINVAL);
    ASSERT_EQ(fi_mr_regv(world.domain.get(), buffers, 1, FI_SEND, 0, 0, 0, &mr, nullptr), 0);
    EXPECT_EQ(fi_close(&mr->fid), 0);
    fi_mr_attr attributes{};
    attributes.mr_iov = buffers;
    attributes.iov_count = 1;
    attributes.access = FI_RECV | FI_REMOTE_WRITE;
    attributes.context = &attributes;
    ASSERT_EQ(fi_mr_regattr(world.domain.get(), &attributes, 0, &mr), 0);
    EXPECT_EQ(mr->fid.context, &attributes);
    EXPECT_EQ(fi_close(&mr->fid), 0);
    EXPECT_EQ(fi_mr_reg(world.domain.get(), memory, 64, FI_COLLECTIVE, 0, 0, 0, &mr, nullptr),
              -FI_EINVAL);
}

TEST(Objects, EndpointNeedsWhatItIsMadeOf) {
    World world;
    const auto ep = open_endpoint(world.domain.get(), world.info.get());
    EXPECT_EQ(fi_enable(ep.get()), -FI_ENOAV);
    char name[kNameBytes];
    std::size_t bytes = sizeof name;
    EXPECT_EQ(fi_getname(ep.handle(), name, &bytes), -FI_EOPBADSTATE);
    EXPECT_EQ(fi_send(ep.get(), name, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
}

TEST(Objects, EndpointNeedsCompletionQueues) {
    World world;
    const auto av = open_av(world.domain.get());
    const auto cq = open_cq(world.domain.get());
    const auto ep = open_endpoint(world.domain.get(), world.info.get());
    EXPECT_EQ(fi_ep_bind(ep.get(), av.handle(), 0), 0);
    EXPECT_EQ(fi_enable(ep.get()), -FI_ENOCQ);
    EXPECT_EQ(fi_ep_bind(ep.get(), cq.handle(), FI_TRANSMIT), 0);
    EXPECT_EQ(fi_enable(ep.get()), -FI_ENOCQ);
    EXPECT_EQ(fi_ep_bind(ep.get(), cq.handle(), 0), -FI_EBADFLAGS);
    EXPECT_EQ(fi_ep_bind(ep.get(), cq.handle(), FI_TRANSMIT), -FI_EBUSY);
    EXPECT_EQ(fi_ep_bind(ep.get(), cq.handle(), FI_RECV), 0);
    EXPECT_EQ(fi_enable(ep.get()), 0);
    EXPECT_EQ(fi_ep_bind(ep.get(), av.handle(), 0), -FI_EOPBADSTATE);
}

TEST(Objects, NameIsCutToTheRoomThereIs) {
    World world;
    Station station(world);
    station.enable();
    char small[8];
    std::size_t bytes = sizeof small;
    EXPECT_EQ(fi_getname(station.ep.handle(), small, &bytes), -FI_ETOOSMALL);
    EXPECT_EQ(bytes, kNameBytes);
}

TEST(Objects, EndpointsHaveNamesOfTheirOwn) {
    World world;
    Pair pair(world);
    EXPECT_NE(std::memcmp(pair.a.name, pair.b.name, kNameBytes), 0);
}

TEST(Objects, Options) {
    World world;
    Station station(world);
    std::size_t least = 4096, bytes = sizeof least;
    ASSERT_EQ(fi_setopt(station.ep.handle(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least,
                        sizeof least),
              0);
    station.enable();
    least = 0;
    ASSERT_EQ(
        fi_getopt(station.ep.handle(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &bytes), 0);
    EXPECT_EQ(least, 4096u);
    bytes = 2;
    EXPECT_EQ(
        fi_getopt(station.ep.handle(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &bytes),
        -FI_ETOOSMALL);
    EXPECT_EQ(fi_setopt(station.ep.handle(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, 2),
              -FI_EINVAL);
    EXPECT_EQ(fi_setopt(station.ep.handle(), FI_OPT_ENDPOINT, 9999, &least, sizeof least),
              -FI_ENOPROTOOPT);
}

TEST(Objects, OperationFlags) {
    World world;
    Station station(world);
    station.enable();
    std::uint64_t flags = FI_TRANSMIT | FI_DELIVERY_COMPLETE;
    EXPECT_EQ(fi_control(station.ep.handle(), FI_SETOPSFLAG, &flags), 0);
    flags = FI_TRANSMIT;
    EXPECT_EQ(fi_control(station.ep.handle(), FI_GETOPSFLAG, &flags), 0);
    EXPECT_EQ(flags, FI_DELIVERY_COMPLETE);
    flags = FI_DELIVERY_COMPLETE;
    EXPECT_EQ(fi_control(station.ep.handle(), FI_SETOPSFLAG, &flags), -FI_EINVAL);
}

TEST(Objects, AliasKeepsItsOriginal) {
    World world;
    Station station(world);
    station.enable();
    fid_ep* made = nullptr;
    ASSERT_EQ(fi_ep_alias(station.ep.get(), &made, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
    Opened<fid_ep> alias(made);
    EXPECT_EQ(station.ep.close(), -FI_EBUSY);
    char name[kNameBytes];
    std::size_t bytes = sizeof name;
    EXPECT_EQ(fi_getname(alias.handle(), name, &bytes), 0);
    EXPECT_EQ(std::memcmp(name, station.name, kNameBytes), 0);
}

TEST(Objects, AtomicsAreTold) {
    World world;
    Station station(world);
    station.enable();
    fi_atomic_attr attributes{};
    ASSERT_EQ(fi_query_atomic(world.domain.get(), FI_UINT64, FI_SUM, &attributes, 0), 0);
    EXPECT_EQ(attributes.size, 8u);
    std::size_t count = 0;
    ASSERT_EQ(fi_atomicvalid(station.ep.get(), FI_UINT64, FI_SUM, &count), 0);
    EXPECT_EQ(count, attributes.count);
    EXPECT_GE(count, 1000u);
    ASSERT_EQ(fi_compare_atomicvalid(station.ep.get(), FI_INT32, FI_CSWAP, &count), 0);
    ASSERT_EQ(
        fi_query_atomic(world.domain.get(), FI_INT32, FI_CSWAP, &attributes, FI_COMPARE_ATOMIC), 0);
    EXPECT_EQ(count, attributes.count);
    EXPECT_EQ(fi_atomicvalid(station.ep.get(), FI_INT32, FI_CSWAP, &count), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_atomicvalid(station.ep.get(), FI_FLOAT, FI_BOR, &count), -FI_EOPNOTSUPP);
}

// Domains come and go, also with endpoints that were never used.
TEST(Objects, ManyTimes) {
    for (int i = 0; i < 5; ++i) {
        World world;
        Station one(world), other(world);
        one.enable();
        other.enable();
    }
}

TEST(Objects, DomainsOfOneProcess) {
    World first, second, third;
    Station a(first), b(second), c(third);
    a.enable();
    b.enable();
    c.enable();
}

}  // namespace
}  // namespace heddle::test
