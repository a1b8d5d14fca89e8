// SPDX-License-Identifier: BSD-2-Clause
// The QP state machine: every (from, to) of every transport with the attributes that IBTA 11.2.5.2
// (table 94) and the kernel's ib_modify_qp_is_ok require and allow. A legal transition succeeds;
// one that is illegal, lacks a required attribute or carries one that it may not, is EINVAL and
// changes nothing. mlx5_ib has no send queue drain: RTS to SQD is EINVAL there, and so it is here.

#include <cerrno>
#include <functional>

#include "verbs_fixture.h"

namespace softhca::test {
namespace {

enum Kind { kRc, kUc, kUd, kInitiator, kTarget, kKinds };
const char* const kKindNames[] = {"RC", "UC", "UD", "XrcSend", "XrcRecv"};
const char* const kStateNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponder = kPath | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequester =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kOpen = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
// Alternate paths are legal by the table; whether the device has them is another matter.
constexpr int kMigration = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

struct Rule {
    ibv_qp_state from;
    ibv_qp_state to;
    int required[kKinds];
    int optional[kKinds];
};

const Rule kRules[] = {
    {IBV_QPS_RESET,
     IBV_QPS_INIT,
     {kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_QKEY,
      kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_ACCESS_FLAGS},
     {}},
    {IBV_QPS_INIT,
     IBV_QPS_INIT,
     {},
     {kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_QKEY,
      kOpen | IBV_QP_ACCESS_FLAGS, kOpen | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {kResponder, kPath, 0, kPath, kResponder},
     {IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {kRequester, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, kRequester, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN},
     {IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kMigration,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kMigration, IBV_QP_CUR_STATE | IBV_QP_QKEY,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kMigration,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kMigration}},
    {IBV_QPS_RTS,
     IBV_QPS_RTS,
     {},
     {IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kMigration,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kMigration, IBV_QP_CUR_STATE | IBV_QP_QKEY,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kMigration,
      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | kMigration}},
    {IBV_QPS_SQE,
     IBV_QPS_RTS,
     {},
     {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY, 0, 0}},
};

// What uverbs takes from a half of an XRC connection and ignores (modify_qp_mask in uverbs_cmd.c).
bool dropped_by_uverbs(Kind kind, int attribute) {
    if (kind == kInitiator) return attribute & (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (kind == kTarget)
        return attribute & (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    return false;
}

const Rule* rule_of(ibv_qp_state from, ibv_qp_state to) {
    static const Rule kAnyRule = {};
    if (to == IBV_QPS_RESET) return &kAnyRule;
    if (to == IBV_QPS_ERR && from != IBV_QPS_RESET) return &kAnyRule;
    for (const Rule& rule : kRules)
        if (rule.from == from && rule.to == to) return &rule;
    return nullptr;
}

const int kAttributes[] = {IBV_QP_CUR_STATE,
                           IBV_QP_EN_SQD_ASYNC_NOTIFY,
                           IBV_QP_ACCESS_FLAGS,
                           IBV_QP_PKEY_INDEX,
                           IBV_QP_PORT,
                           IBV_QP_QKEY,
                           IBV_QP_AV,
                           IBV_QP_PATH_MTU,
                           IBV_QP_TIMEOUT,
                           IBV_QP_RETRY_CNT,
                           IBV_QP_RNR_RETRY,
                           IBV_QP_RQ_PSN,
                           IBV_QP_ALT_PATH,
                           IBV_QP_MIN_RNR_TIMER,
                           IBV_QP_SQ_PSN,
                           IBV_QP_DEST_QPN,
                           IBV_QP_MAX_QP_RD_ATOMIC,
                           IBV_QP_MAX_DEST_RD_ATOMIC,
                           IBV_QP_PATH_MIG_STATE,
                           IBV_QP_CAP};

class StateMachine : public testing::TestWithParam<int> {
protected:
    static Kind kind() { return static_cast<Kind>(GetParam()); }
    static bool dropped(int attribute) { return dropped_by_uverbs(kind(), attribute); }

    // The QP of this test's kind in an endpoint.
    static ibv_qp* subject(Endpoint& e) { return kind() == kTarget ? e.target.get() : e.qp.get(); }

    static ibv_qp_attr values(const Endpoint& e, ibv_qp_state from) {
        ibv_qp_attr a = {};
        a.cur_qp_state = from;
        a.port_num = 1;
        a.qkey = 0x11111111;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = e.qp->qp_num;
        a.rq_psn = 0x123456;
        a.sq_psn = 0x654321;
        a.ah_attr.dlid = 1;
        a.ah_attr.port_num = 1;
        a.max_dest_rd_atomic = 4;
        a.max_rd_atomic = 8;
        a.min_rnr_timer = 12;
        a.timeout = 14;
        a.retry_cnt = 5;
        a.rnr_retry = 6;
        a.path_mig_state = IBV_MIG_MIGRATED;
        return a;
    }

    // An endpoint whose subject is in the state; UC and UD reach SQE by an error.
    std::unique_ptr<Endpoint> in_state(ibv_qp_state state) {
        Endpoint::Options options;
        options.transport = kind() == kRc   ? Transport::kRc
                            : kind() == kUc ? Transport::kUc
                            : kind() == kUd ? Transport::kUd
                                            : Transport::kXrc;
        options.memory = 4096;
        auto e = std::make_unique<Endpoint>(options, first_.get());
        if (state == IBV_QPS_RESET) return e;
        step(*e, IBV_QPS_RESET, IBV_QPS_INIT);
        if (state == IBV_QPS_INIT) return e;
        if (state == IBV_QPS_ERR) {
            step(*e, IBV_QPS_INIT, IBV_QPS_ERR);
            return e;
        }
        step(*e, IBV_QPS_INIT, IBV_QPS_RTR);
        if (state == IBV_QPS_RTR) return e;
        step(*e, IBV_QPS_RTR, IBV_QPS_RTS);
        if (state == IBV_QPS_SQE) {
            e->peer = e->address();
            ibv_qp_attr a = values(*e, IBV_QPS_RTS);
            e->ah.reset(check(ibv_create_ah(e->pd.get(), &a.ah_attr), "ibv_create_ah"));
            Work bad;
            bad.sges = {{e->memory->address(), 8, 0x5a5a00}};
            EXPECT_EQ(e->post(bad), 0);
            EXPECT_EQ(e->wait_send().status, IBV_WC_LOC_PROT_ERR);
        }
        EXPECT_EQ(state_of(subject(*e)), state);
        return e;
    }

    static void step(Endpoint& e, ibv_qp_state from, ibv_qp_state to) {
        const Rule* rule = rule_of(from, to);
        ibv_qp_attr a = values(e, from);
        a.qp_state = to;
        const int error = ibv_modify_qp(subject(e), &a, IBV_QP_STATE | rule->required[kind()]);
        if (error != 0) fail(std::string(kStateNames[from]) + " to " + kStateNames[to], error);
    }

    static std::vector<ibv_qp_state> states() {
        std::vector<ibv_qp_state> list = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                          IBV_QPS_ERR};
        if (kind() == kUc || kind() == kUd) list.push_back(IBV_QPS_SQE);
        return list;
    }

    static void expect_refused(Endpoint& e, ibv_qp_state from, ibv_qp_state to, int mask) {
        ibv_qp_attr a = values(e, from);
        a.qp_state = to;
        EXPECT_EQ(ibv_modify_qp(subject(e), &a, mask), EINVAL)
            << "attribute mask 0x" << std::hex << mask;
        EXPECT_EQ(state_of(subject(e)), from) << "a refused modify changes nothing";
    }

    void SetUp() override {
        first_ = nullptr;
        Endpoint::Options options;
        options.memory = 4096;
        first_ = std::make_unique<Endpoint>(options);
    }

    std::unique_ptr<Endpoint> first_;  // the others share its context and PD
};

TEST_P(StateMachine, LegalTransitionsSucceedWithWhatTheyRequire) {
    for (const ibv_qp_state from : states()) {
        for (const ibv_qp_state to :
             {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR}) {
            const Rule* rule = rule_of(from, to);
            if (rule == nullptr) continue;
            SCOPED_TRACE(testing::Message() << kStateNames[from] << " to " << kStateNames[to]);
            std::vector<int> masks = {0};
            for (const int attribute : kAttributes) {
                if ((rule->optional[kind()] & ~kMigration & attribute) != 0)
                    masks.push_back(attribute);
            }
            for (const int extra : masks) {
                const auto e = in_state(from);
                ibv_qp_attr a = values(*e, from);
                a.qp_state = to;
                EXPECT_EQ(
                    ibv_modify_qp(subject(*e), &a, IBV_QP_STATE | rule->required[kind()] | extra),
                    0)
                    << "optional attribute 0x" << std::hex << extra;
                EXPECT_EQ(state_of(subject(*e)), to);
            }
        }
    }
}

TEST_P(StateMachine, MissingAndForbiddenAttributesAreRefused) {
    for (const ibv_qp_state from : states()) {
        const auto e = in_state(from);
        for (const ibv_qp_state to :
             {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR}) {
            const Rule* rule = rule_of(from, to);
            if (rule == nullptr) continue;
            SCOPED_TRACE(testing::Message() << kStateNames[from] << " to " << kStateNames[to]);
            const int required = rule->required[kind()];
            for (const int attribute : kAttributes) {
                if ((required & attribute) != 0)
                    expect_refused(*e, from, to, IBV_QP_STATE | (required & ~attribute));
                else if ((rule->optional[kind()] & attribute) == 0 && !dropped(attribute))
                    expect_refused(*e, from, to, IBV_QP_STATE | required | attribute);
            }
        }
    }
}

TEST_P(StateMachine, IllegalTransitionsAreRefused) {
    for (const ibv_qp_state from : states()) {
        const auto e = in_state(from);
        for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; ++to) {
            const auto target = static_cast<ibv_qp_state>(to);
            if (rule_of(from, target) != nullptr) continue;
            SCOPED_TRACE(testing::Message() << kStateNames[from] << " to " << kStateNames[to]);
            expect_refused(*e, from, target, IBV_QP_STATE);
            for (const Rule& rule : kRules) {  // as if it came from elsewhere
                if (rule.to == target)
                    expect_refused(*e, from, target, IBV_QP_STATE | rule.required[kind()]);
            }
        }
        expect_refused(*e, from, static_cast<ibv_qp_state>(7), IBV_QP_STATE);
    }
}

TEST_P(StateMachine, CurrentStateThatIsWrongIsRefused) {
    if (kind() == kInitiator || kind() == kTarget) GTEST_SKIP() << "as RC";
    const auto e = in_state(IBV_QPS_INIT);
    ibv_qp_attr a = values(*e, IBV_QPS_INIT);
    a.qp_state = IBV_QPS_RTS;
    a.cur_qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(subject(*e), &a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    EXPECT_EQ(state_of(subject(*e)), IBV_QPS_INIT);
}

TEST_P(StateMachine, ValuesOutOfRangeAreRefused) {
    const auto refuse = [&](ibv_qp_state from, ibv_qp_state to,
                            const std::function<void(ibv_qp_attr&)>& spoil, const char* what) {
        SCOPED_TRACE(what);
        const auto e = in_state(from);
        ibv_qp_attr a = values(*e, from);
        a.qp_state = to;
        spoil(a);
        EXPECT_EQ(
            ibv_modify_qp(subject(*e), &a, IBV_QP_STATE | rule_of(from, to)->required[kind()]),
            EINVAL);
        EXPECT_EQ(state_of(subject(*e)), from);
    };
    refuse(
        IBV_QPS_RESET, IBV_QPS_INIT, [](auto& a) { a.port_num = 0; }, "port 0");
    refuse(
        IBV_QPS_RESET, IBV_QPS_INIT, [](auto& a) { a.port_num = 2; }, "port 2 of 1");
    refuse(
        IBV_QPS_RESET, IBV_QPS_INIT, [](auto& a) { a.pkey_index = 0xffff; }, "P_Key index");
    if (kind() == kRc || kind() == kTarget)
        refuse(
            IBV_QPS_INIT, IBV_QPS_RTR, [](auto& a) { a.max_dest_rd_atomic = 255; },
            "responder resources beyond max_qp_rd_atom");
    if (kind() == kRc || kind() == kInitiator)
        refuse(
            IBV_QPS_RTR, IBV_QPS_RTS, [](auto& a) { a.max_rd_atomic = 255; },
            "initiator depth beyond max_qp_init_rd_atom");
}

TEST_P(StateMachine, QueryReturnsWhatWasSet) {
    const auto e = in_state(IBV_QPS_RTS);
    const ibv_qp_attr set = values(*e, IBV_QPS_RTR);
    ibv_qp_attr got = {};
    ibv_qp_init_attr initial = {};
    ASSERT_EQ(ibv_query_qp(subject(*e), &got, 2 * IBV_QP_DEST_QPN - 1, &initial), 0);
    EXPECT_EQ(got.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(got.cur_qp_state, IBV_QPS_RTS);
    EXPECT_EQ(got.port_num, 1);
    EXPECT_EQ(got.pkey_index, 0);
    EXPECT_EQ(got.sq_psn, set.sq_psn);
    if (kind() == kUd) {
        EXPECT_EQ(got.qkey, set.qkey);
    } else {
        EXPECT_EQ(got.path_mtu, set.path_mtu);
        EXPECT_EQ(got.dest_qp_num, set.dest_qp_num);
        EXPECT_EQ(got.rq_psn, set.rq_psn);
        EXPECT_EQ(got.ah_attr.dlid, set.ah_attr.dlid);
        EXPECT_EQ(got.ah_attr.port_num, 1);
        EXPECT_EQ(got.qp_access_flags, set.qp_access_flags);
    }
    if (kind() == kRc || kind() == kTarget) {
        EXPECT_EQ(got.max_dest_rd_atomic, set.max_dest_rd_atomic);
        EXPECT_EQ(got.min_rnr_timer, set.min_rnr_timer);
    }
    if (kind() == kRc || kind() == kInitiator) {
        EXPECT_EQ(got.max_rd_atomic, set.max_rd_atomic);
        EXPECT_EQ(got.timeout, set.timeout);
        EXPECT_EQ(got.retry_cnt, set.retry_cnt);
        EXPECT_EQ(got.rnr_retry, set.rnr_retry);
    }
    if (kind() != kTarget) {
        EXPECT_EQ(got.cap.max_send_wr, initial.cap.max_send_wr);
        EXPECT_GE(got.cap.max_send_wr, e->options.send_depth);
        EXPECT_GE(got.cap.max_send_sge, e->options.send_sges);
        EXPECT_EQ(initial.send_cq, e->send_cq.get());
        EXPECT_EQ(initial.sq_sig_all, 0);
    }
}

TEST_P(StateMachine, PostsAreRefusedBeforeTheirState) {
    if (kind() == kTarget) GTEST_SKIP() << "nothing can be posted to an XRC target";
    for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
        SCOPED_TRACE(kStateNames[state]);
        const auto e = in_state(state);
        e->peer = e->address();
        ibv_qp_attr a = values(*e, state);
        e->ah.reset(check(ibv_create_ah(e->pd.get(), &a.ah_attr), "ibv_create_ah"));
        Work work;
        work.sges = {e->memory->sge(0, 8)};
        EXPECT_NE(e->post(work), 0) << "a send needs RTS";
        if (kind() != kInitiator) {
            EXPECT_EQ(e->post_receive(1, {e->memory->sge(0, 64)}) == 0, state != IBV_QPS_RESET)
                << "a receive needs INIT";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, StateMachine, testing::Range(0, int{kKinds}),
                         [](const auto& info) { return std::string(kKindNames[info.param]); });

}  // namespace
}  // namespace softhca::test
