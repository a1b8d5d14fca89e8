// SPDX-License-Identifier: BSD-2-Clause
// doorbell_count [--json]: posts known mixes of work requests and compares what the device counted
// (softhca_query_qp, found at run time) with what libmlx5's rule says (post_send_db in rdma-core's
// providers/mlx5/qp.c): a call that posts something rings once - by BlueFlame if it posted one WQE
// of 2 to 16 units of 16 bytes, inline or with MLX5_POST_SEND_PREFER_BF (the default), on a uUAR
// that has BlueFlame, and MLX5_SHUT_UP_BF is off; else by a doorbell. Prints a table; exits with 1
// if a count differs and with 77 if nothing counts here.

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "doorbell_subject.h"

struct softhca_counters {
    std::uint64_t doorbells, blueflame, wqes, dma_read_wqe, dma_read_payload, dma_write_payload,
        dma_write_cqe, rnr_naks, retries;
};

namespace doorbell_count {
namespace {

using Query = int (*)(std::uint32_t, softhca_counters*);

struct Expectation {
    std::uint64_t doorbells = 0, blueflame = 0, wqes = 0;
};

class Bench {
public:
    Bench(Query query, bool json) : query_(query), json_(json) {
        if (!json_)
            std::printf("%-22s %-44s %17s %17s %17s\n", "QP", "posted", "doorbells", "BlueFlame",
                        "WQEs");
    }

    // Runs `posts` and compares the difference of the counters with what is expected.
    void check(const Subject& s, const std::string& what, const Expectation& expected,
               const std::function<void()>& posts) {
        const softhca_counters before = read(s);
        posts();
        const softhca_counters after = read(s);
        const Expectation got = {after.doorbells - before.doorbells,
                                 after.blueflame - before.blueflame, after.wqes - before.wqes};
        const bool good = got.doorbells == expected.doorbells &&
                          got.blueflame == expected.blueflame && got.wqes == expected.wqes;
        wrong_ += !good;
        total_.doorbells += got.doorbells;
        total_.blueflame += got.blueflame;
        total_.wqes += got.wqes;
        wanted_.doorbells += expected.doorbells;
        wanted_.blueflame += expected.blueflame;
        wanted_.wqes += expected.wqes;
        if (!json_) print(s.name.c_str(), what.c_str(), expected, got, good);
    }

    int finish() const {
        if (json_) {
            std::printf(
                "{\"doorbells_expected\":%llu,\"doorbells\":%llu,\"blueflame_expected\":%llu,"
                "\"blueflame\":%llu,\"wqes_expected\":%llu,\"wqes\":%llu,\"wrong\":%u}\n",
                ull(wanted_.doorbells), ull(total_.doorbells), ull(wanted_.blueflame),
                ull(total_.blueflame), ull(wanted_.wqes), ull(total_.wqes), wrong_);
        } else {
            print("all", "", wanted_, total_, wrong_ == 0);
        }
        return wrong_ != 0 ? 1 : 0;
    }

private:
    static unsigned long long ull(std::uint64_t value) { return value; }
    static void print(const char* qp, const char* what, const Expectation& expected,
                      const Expectation& got, bool good) {
        std::printf("%-22s %-44s %8llu %8llu %8llu %8llu %8llu %8llu%s\n", qp, what,
                    ull(expected.doorbells), ull(got.doorbells), ull(expected.blueflame),
                    ull(got.blueflame), ull(expected.wqes), ull(got.wqes), good ? "" : "  DIFFERS");
    }
    softhca_counters read(const Subject& s) const {
        softhca_counters counters = {};
        if (query_(s.qp->qp_num, &counters) != 0) die("softhca_query_qp");
        return counters;
    }

    Query query_;
    bool json_;
    unsigned wrong_ = 0;
    Expectation total_, wanted_;
};

struct Shape {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::uint32_t bytes = 8;  // of each SGE, or inline
    std::uint32_t sges = 1;
    bool is_inline = false;
};

std::uint32_t units(const Subject& s, const Shape& shape) {
    std::uint32_t count = s.head();
    if (shape.opcode == IBV_WR_RDMA_WRITE || shape.opcode == IBV_WR_RDMA_READ) count += 1;
    if (shape.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) count += 2;
    if (!shape.is_inline) return count + (shape.bytes != 0 ? shape.sges : 0);
    if (shape.bytes * shape.sges == 0) return count;
    return count + (4 + shape.bytes * shape.sges + kUnit - 1) / kUnit;
}

bool by_blueflame(const Subject& s, const Shape& shape) {
    const std::uint32_t size = units(s, shape);
    const bool is_inline = shape.is_inline && shape.sges > 0;
    return !s.d.shut && s.blueflame && (is_inline || s.d.prefer) && size >= 2 && size <= 16;
}

void fill(const Subject& s, const Shape& shape, ibv_send_wr& wr, std::vector<ibv_sge>& sges) {
    sges.assign(shape.sges,
                {reinterpret_cast<std::uint64_t>(s.d.memory) + 65536, shape.bytes, s.d.mr->lkey});
    wr = {};
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(shape.sges);
    wr.opcode = shape.opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (shape.is_inline) wr.send_flags |= IBV_SEND_INLINE;
    const auto target = reinterpret_cast<std::uint64_t>(s.d.memory) + 131072;
    if (s.type == IBV_QPT_UD) {
        wr.wr.ud = {s.ah, s.far->qp_num, 0x1111};
    } else if (shape.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic = {target, 1, 0, s.d.mr->rkey};
    } else {
        wr.wr.rdma = {target, s.d.mr->rkey};
    }
    if (s.type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = s.d.xsrqn;
}

// `times` posts of lists of `length` equal requests.
void lists(Bench& bench, const Subject& s, const char* what, const Shape& shape,
           std::uint32_t length = 1, std::uint32_t times = 5) {
    const bool single = length == 1 && by_blueflame(s, shape);
    bench.check(s, what, {single ? 0 : times, single ? times : 0, std::uint64_t{length} * times},
                [&] {
                    for (std::uint32_t t = 0; t < times; ++t) {
                        const std::uint32_t receives = shape.opcode == IBV_WR_SEND ? length : 0;
                        s.receives(receives);
                        std::vector<ibv_send_wr> list(length);
                        std::vector<std::vector<ibv_sge>> sges(length);
                        for (std::uint32_t i = 0; i < length; ++i) {
                            fill(s, shape, list[i], sges[i]);
                            if (i > 0) list[i - 1].next = &list[i];
                        }
                        ibv_send_wr* bad = nullptr;
                        if (ibv_post_send(s.qp, list.data(), &bad) != 0) die("ibv_post_send");
                        s.drain(length, receives);
                    }
                });
}

// `times` batches of `length` by ibv_wr_*.
void batches(Bench& bench, const Subject& s, const char* what, const Shape& shape,
             std::uint32_t length, std::uint32_t times = 5) {
    const bool single = length == 1 && by_blueflame(s, shape);
    bench.check(
        s, what, {single ? 0 : times, single ? times : 0, std::uint64_t{length} * times}, [&] {
            for (std::uint32_t t = 0; t < times; ++t) {
                const std::uint32_t receives = shape.opcode == IBV_WR_SEND ? length : 0;
                s.receives(receives);
                ibv_wr_start(s.ex);
                for (std::uint32_t i = 0; i < length; ++i) {
                    s.ex->wr_flags = IBV_SEND_SIGNALED;
                    const auto target = reinterpret_cast<std::uint64_t>(s.d.memory) + 131072;
                    if (shape.opcode == IBV_WR_SEND) ibv_wr_send(s.ex);
                    if (shape.opcode == IBV_WR_RDMA_WRITE)
                        ibv_wr_rdma_write(s.ex, s.d.mr->rkey, target);
                    if (s.type == IBV_QPT_UD) ibv_wr_set_ud_addr(s.ex, s.ah, s.far->qp_num, 0x1111);
                    if (s.type == IBV_QPT_XRC_SEND) ibv_wr_set_xrc_srqn(s.ex, s.d.xsrqn);
                    const auto from = reinterpret_cast<std::uint64_t>(s.d.memory) + 65536;
                    if (shape.is_inline)
                        ibv_wr_set_inline_data(s.ex, s.d.memory + 65536, shape.bytes);
                    else if (shape.sges == 1)
                        ibv_wr_set_sge(s.ex, s.d.mr->lkey, from, shape.bytes);
                    else
                        ibv_wr_set_sge_list(s.ex, 0, nullptr);
                }
                if (ibv_wr_complete(s.ex) != 0) die("ibv_wr_complete");
                s.drain(length, receives);
            }
        });
}

void refused(Bench& bench, const Subject& s) {
    bench.check(s, "refused: 40 SGEs, 5 times", {}, [&] {
        for (int i = 0; i < 5; ++i) {
            ibv_send_wr wr;
            ibv_send_wr* bad = nullptr;
            std::vector<ibv_sge> sges;
            fill(s, {IBV_WR_SEND, 8, 40, false}, wr, sges);
            if (ibv_post_send(s.qp, &wr, &bad) == 0) die("40 SGEs were not refused");
        }
    });
    const Shape good = {IBV_WR_SEND, 8, 1, false};
    const bool single = by_blueflame(s, good);
    bench.check(s, "list of 2, the second refused", {single ? 0U : 1U, single ? 1U : 0U, 1}, [&] {
        s.receives(1);
        ibv_send_wr wr[2];
        ibv_send_wr* bad = nullptr;
        std::vector<ibv_sge> sges[2];
        fill(s, good, wr[0], sges[0]);
        fill(s, {IBV_WR_SEND, 8, 40, false}, wr[1], sges[1]);
        wr[0].next = &wr[1];
        if (ibv_post_send(s.qp, wr, &bad) == 0 || bad != &wr[1]) die("the second was not refused");
        s.drain(1, 1);
    });
    bench.check(s, "batch aborted, batch of nothing", {}, [&] {
        ibv_wr_start(s.ex);
        s.ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(s.ex);
        if (s.type == IBV_QPT_UD) ibv_wr_set_ud_addr(s.ex, s.ah, s.far->qp_num, 0x1111);
        if (s.type == IBV_QPT_XRC_SEND) ibv_wr_set_xrc_srqn(s.ex, s.d.xsrqn);
        ibv_wr_set_inline_data(s.ex, s.d.memory, 8);
        ibv_wr_abort(s.ex);
        ibv_wr_start(s.ex);
        if (ibv_wr_complete(s.ex) != 0) die("ibv_wr_complete of nothing");
    });
}

void all_mixes(Bench& bench, const Subject& s) {
    const std::uint32_t h = s.head();
    lists(bench, s, "send, inline 16", {IBV_WR_SEND, 16, 1, true});
    lists(bench, s, "send, inline of nothing", {IBV_WR_SEND, 0, 1, true});
    lists(bench, s, "send, inline, just 16 units", {IBV_WR_SEND, (16 - h) * kUnit - 4, 1, true}, 1,
          50);
    lists(bench, s, "send, inline, one byte too much", {IBV_WR_SEND, (16 - h) * kUnit - 3, 1, true},
          1, 50);
    lists(bench, s, "send, one SGE", {IBV_WR_SEND, 8, 1, false});
    lists(bench, s, "send, no SGE", {IBV_WR_SEND, 0, 0, false});
    lists(bench, s, "send, gather, just 16 units", {IBV_WR_SEND, 8, 16 - h, false}, 1, 50);
    lists(bench, s, "send, gather, one SGE too much", {IBV_WR_SEND, 8, 17 - h, false}, 1, 50);
    lists(bench, s, "send, list of 2, inline", {IBV_WR_SEND, 16, 1, true}, 2);
    lists(bench, s, "send, list of 10, one SGE", {IBV_WR_SEND, 8, 1, false}, 10);
    batches(bench, s, "send, batch of 1, inline 32", {IBV_WR_SEND, 32, 1, true}, 1);
    batches(bench, s, "send, batch of 1, one SGE", {IBV_WR_SEND, 8, 1, false}, 1);
    batches(bench, s, "send, batch of 1, no SGE", {IBV_WR_SEND, 0, 0, false}, 1);
    batches(bench, s, "send, batch of 8, inline 100", {IBV_WR_SEND, 100, 1, true}, 8, 20);
    refused(bench, s);
    if (s.type == IBV_QPT_UD) return;
    lists(bench, s, "write, inline 64", {IBV_WR_RDMA_WRITE, 64, 1, true});
    lists(bench, s, "write, inline of nothing", {IBV_WR_RDMA_WRITE, 0, 1, true});
    lists(bench, s, "write, one SGE of 4096", {IBV_WR_RDMA_WRITE, 4096, 1, false});
    lists(bench, s, "write, no SGE", {IBV_WR_RDMA_WRITE, 0, 0, false});
    lists(bench, s, "write, list of 10, inline", {IBV_WR_RDMA_WRITE, 16, 1, true}, 10);
    batches(bench, s, "write, batch of 1, no SGE", {IBV_WR_RDMA_WRITE, 0, 0, false}, 1);
    batches(bench, s, "write, batch of 1, one SGE", {IBV_WR_RDMA_WRITE, 512, 1, false}, 1);
    batches(bench, s, "write, batch of 10, one SGE", {IBV_WR_RDMA_WRITE, 512, 1, false}, 10);
    if (!s.reliable()) return;
    lists(bench, s, "read, one SGE", {IBV_WR_RDMA_READ, 64, 1, false});
    lists(bench, s, "fetch and add", {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, false});
}

// One QP of each kind, and one in a thread domain.
void all_subjects(Bench& bench, const Device& d) {
    // The first QP has a low-latency uUAR. With two uUARs in the kernel of 2018, the second QP made
    // has uUAR 0, which has no BlueFlame.
    const bool two = is("MLX5_TOTAL_UUARS", "2") && is("MLX5_NUM_LOW_LAT_UUARS", "1");
    const bool later = !(two && d.static_uars);
    const Subject rc(d, "RC", IBV_QPT_RC, true);
    const Subject uc(d, "UC", IBV_QPT_UC, later);
    const Subject ud(d, "UD", IBV_QPT_UD, later);
    const Subject xrc(d, "XRC", IBV_QPT_XRC_SEND, later);
    ibv_td_init_attr none = {};
    ibv_parent_domain_init_attr parent = {};
    parent.pd = d.pd;
    parent.td = need(ibv_alloc_td(d.context, &none), "ibv_alloc_td");
    ibv_pd* domain = need(ibv_alloc_parent_domain(d.context, &parent), "parent domain");
    {
        const Subject in_domain(d, "RC, thread domain", IBV_QPT_RC, true, domain);
        for (const Subject* s : {&rc, &uc, &ud, &xrc, &in_domain})
            all_mixes(bench, *s);
    }
    if (ibv_dealloc_pd(domain) != 0 || ibv_dealloc_td(parent.td) != 0) die("freeing the domain");
}

}  // namespace
}  // namespace doorbell_count

int main(int argc, char** argv) {
    using namespace doorbell_count;
    const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
    if (argc > 2 || (argc == 2 && !json)) {
        std::fprintf(stderr, "usage: doorbell_count [--json]\n");
        return 2;
    }
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "softhca_query_qp"));
    if (query == nullptr) {
        std::fprintf(stderr, "doorbell_count: nothing counts here: run it under `softhca run`\n");
        return 77;
    }
    const Device d = open_device();
    Bench bench(query, json);
    all_subjects(bench, d);
    close_device(d);
    return bench.finish();
}
