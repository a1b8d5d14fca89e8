// SPDX-License-Identifier: BSD-2-Clause
// The connector's tables, both sides: datagrams from several ports that say anything, while
// endpoints come and go and connections are asked for, abandoned and stopped. Verbs are stubs that
// fail when the input says so; time is what the input says.
//
// No queue pair is lost or destroyed twice, limits hold, each request ends once.
#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <set>
#include <vector>

#include "input.h"
#include "protocol/wireup/connector_requests.h"
#include "protocol/wireup/connector_targets.h"

namespace {

using softhca::fuzz::fail;
using softhca::fuzz::Input;

Input* input = nullptr;
std::map<std::uint32_t, ibv_qp*> queue_pairs;  // that are there
std::uint32_t next_number = 100;

ibv_qp* make_qp(ibv_context* context) {
    if (input->one_in(16)) {
        errno = ENOMEM;
        return nullptr;
    }
    auto* const qp = new ibv_qp{};
    qp->context = context;
    // Numbers come again, as a device's do.
    qp->qp_num = next_number = 100 + (next_number + 1) % 64;
    while (queue_pairs.contains(qp->qp_num))
        ++qp->qp_num;
    queue_pairs[qp->qp_num] = qp;
    return qp;
}

}  // namespace

// What the tables use of libibverbs.
extern "C" {
// What ibv_create_qp_ex calls where it needs no more.
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr*) { return make_qp(pd->context); }
int ibv_destroy_qp(ibv_qp* qp) {
    if (queue_pairs.erase(qp->qp_num) == 0) fail("a queue pair is destroyed twice");
    delete qp;
    return 0;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr*, int) {
    if (!queue_pairs.contains(qp->qp_num)) fail("a queue pair is used that is gone");
    return input->one_in(32) ? EINVAL : 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->max_qp_rd_atom = 16;
    return 0;
}
}

namespace heddle::protocol {
namespace {

constexpr std::size_t kMost = 12, kMostOfPeer = 5, kMostGone = 4, kPeers = 3;
constexpr std::uint32_t kDcTarget = 99;

struct FakeContext {
    verbs_context verbs{};
    FakeContext() {
        verbs.sz = sizeof verbs;
        verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
        verbs.create_qp_ex = [](ibv_context* context, ibv_qp_init_attr_ex*) {
            return make_qp(context);
        };
    }
    ibv_context* get() { return &verbs.context; }
};

class Tables {
public:
    explicit Tables(Input& input)
        : input_(input),
          shared_(input.one_in(3) ? EndpointAddress::kDc : EndpointAddress::kXrc),
          targets_(self(), own_, options()),
          requests_(self(), own_, options()) {}
    ~Tables() {
        std::vector<ConnectorRequests::Ended> ended;
        requests_.stop_all(now_, ended);
        take(ended);
        for (Asked& asked : asked_) {
            if (!asked.ended && !asked.stopped) fail("a request never ends");
            ibv_destroy_qp(asked.request.qp);
        }
    }

    void run() {
        while (!input_.empty()) {
            step();
            check();
        }
    }

private:
    struct Asked {
        ConnectionRequest request;
        bool ended = false, stopped = false, abandoned = false;
    };

    static Connector::Options options() {
        Connector::Options options;
        options.most_targets = kMost;
        options.most_targets_of_peer = kMostOfPeer;
        options.most_gone = kMostGone;
        options.give_up_ms = 3000;
        return options;
    }
    static verbs::ConnectionAttributes own() {
        verbs::ConnectionAttributes own;
        own.mtu = IBV_MTU_4096;
        return own;
    }
    static EndpointAddress self() {
        EndpointAddress name;
        name.process.nonce = 1;
        name.process.ud_qpn = 10;
        name.process.lid = 1;
        return name;
    }
    // There are few names, so that the same ones come again.
    EndpointAddress peer() {
        EndpointAddress name;
        name.flags = input_.one_in(8) ? 0 : shared_;
        name.endpoint = static_cast<std::uint16_t>(input_.below(2));
        name.context = static_cast<std::uint16_t>(input_.below(2));
        name.channel = input_.below(2);
        name.process.ud_qpn = 20 + input_.below(kPeers);
        name.process.lid = 2;
        name.process.nonce = name.process.ud_qpn * 10 + (input_.one_in(4) ? input_.below(3) : 0);
        return name;
    }
    EndpointAddress local() {
        EndpointAddress name = self();
        name.flags = input_.one_in(4) ? 0 : shared_;
        name.endpoint = static_cast<std::uint16_t>(input_.below(3));
        name.context = static_cast<std::uint16_t>(input_.below(2));
        return name;
    }
    // Whoever has a target there, and has not left, gets a BYE.
    void remove(const EndpointAddress& endpoint) {
        targets_.remove(endpoint, [&](const Datagram& bye, const EndpointAddress& to) {
            if (bye.kind != DatagramKind::kBye || to.process == self().process)
                fail("a BYE is for a peer");
        });
    }
    std::uint64_t id() {
        if (!sent_.empty() && input_.one_in(2)) return sent_[input_.below(256) % sent_.size()].id;
        return input_.below(6);
    }
    Asked* some() {
        if (asked_.empty()) return nullptr;
        auto at = asked_.begin();
        std::advance(at, input_.below(256) % asked_.size());
        return &*at;
    }
    void take(std::vector<ConnectorRequests::Ended>& ended) {
        for (const auto& each : ended) {
            auto& asked = *static_cast<Asked*>(each.argument);
            if (asked.ended || asked.stopped) fail("a request ends twice");
            asked.ended = true;
            const auto state = asked.request.state.load();
            if ((state == ConnectionRequest::kConnected) != (each.error == 0))
                fail("the state is not that of error %d", each.error);
        }
        ended.clear();
    }

    void step() {
        std::vector<ConnectorRequests::Ended> ended;
        switch (input_.below(12)) {
            case 0:
            case 1:
            case 2: {
                Datagram request;
                request.id = input_.below(6);
                request.from = peer();
                request.to = local();
                request.qpn = 2 + input_.below(4);
                request.psn = input_.below(2);
                request.mtu = static_cast<std::uint8_t>(1 + input_.below(5));
                request.reads = 1;
                const Datagram reply = targets_.answer(request, now_);
                if (reply.kind != DatagramKind::kReply || reply.id != request.id)
                    fail("no answer to what was asked");
                const bool by_dc = request.to.dc();
                if (reply.error == 0 &&
                    (by_dc ? reply.qpn != kDcTarget : !queue_pairs.contains(reply.qpn)))
                    fail("an answer names no queue pair");
                if (reply.error == 0 && !targets_.asker(by_dc ? reply.psn : reply.qpn))
                    fail("nobody asked");
                break;
            }
            case 3: {
                Datagram bye;
                bye.kind = DatagramKind::kBye;
                bye.id = input_.one_in(2) ? input_.below(6) : id();
                bye.from = peer();
                for (const Datagram& each : sent_)
                    if (each.id == bye.id && input_.below(4) != 0) bye.from = each.to;
                if (!requests_.bye(bye)) targets_.bye(bye, now_);
                break;
            }
            case 4: {
                LocalEndpoint endpoint;
                endpoint.name = local();
                endpoint.context = context_.get();
                endpoint.pd = &pd_;
                static ibv_xrcd xrcd;
                endpoint.xrcd = endpoint.name.xrc() ? &xrcd : nullptr;
                endpoint.dc_target = endpoint.name.dc() ? kDcTarget : 0;
                endpoint.keep_targets = endpoint.name.rc();
                remove(endpoint.name);
                targets_.add(endpoint);
                break;
            }
            case 5:
                remove(local());
                break;
            case 6:
                targets_.drop(peer().process, 2 + input_.below(4), now_);
                break;
            case 7:
                targets_.refuse(peer(), local());
                if (input_.one_in(4)) targets_.lose(peer(), local(), now_);
                targets_.reached_last(100 + input_.below(70));
                targets_.is_quiet(peer().process, 2 + input_.below(4));
                targets_.has_left(peer(), local());
                targets_.asker(100 + input_.below(70));
                break;
            case 8: {
                ibv_qp* const qp = make_qp(context_.get());
                if (qp == nullptr) break;
                Asked& asked = asked_.emplace_back();
                asked.request.qp = qp;
                asked.request.from = local();
                asked.request.to = input_.one_in(8) ? local() : peer();
                if (input_.one_in(8)) asked.request.to.process.lid = self().process.lid;
                asked.request.argument = &asked;
                requests_.start(asked.request, now_);
                break;
            }
            case 9: {
                Datagram reply;
                reply.kind = DatagramKind::kReply;
                reply.id = id();
                reply.from = peer();
                for (const Datagram& each : sent_)
                    if (each.id == reply.id && input_.below(4) != 0) reply.from = each.to;
                reply.error = input_.one_in(4) ? ECONNREFUSED : 0;
                reply.qpn = 2 + input_.below(4);
                reply.mtu = static_cast<std::uint8_t>(1 + input_.below(5));
                reply.reads = static_cast<std::uint8_t>(1 + input_.below(20));
                requests_.answered(reply, now_, ended);
                break;
            }
            case 10: {
                now_ += std::chrono::milliseconds(input_.value<std::uint16_t>() % 2000);
                targets_.advance(now_);
                if (targets_.next() && *targets_.next() <= now_) fail("a target retires for ever");
                const auto next = requests_.next();
                for (const auto& out : requests_.due(now_, ended))
                    if (out.datagram.kind == DatagramKind::kRequest) sent_.push_back(out.datagram);
                if (next && *next <= now_ && requests_.next() && *requests_.next() <= now_)
                    fail("what was due is still due");
                break;
            }
            default: {
                Asked* const asked = some();
                if (asked == nullptr || asked->abandoned) break;
                const auto state = asked->request.state.load();
                if (state == ConnectionRequest::kConnected && input_.one_in(2)) {
                    requests_.abandon(asked->request, now_);
                    asked->abandoned = true;
                } else if (!asked->stopped) {
                    requests_.stop(asked->request);
                    if (!asked->ended) asked->stopped = true;
                }
                break;
            }
        }
        take(ended);
    }

    void check() {
        if (targets_.size() > kMost) fail("%zu targets", targets_.size());
        const std::size_t owners = targets_.size() + asked_.size();
        if (shared_ == EndpointAddress::kDc ? queue_pairs.size() > owners
                                            : queue_pairs.size() != owners)
            fail("%zu queue pairs, %zu targets, %zu requests", queue_pairs.size(), targets_.size(),
                 asked_.size());
        std::size_t known = 0;
        for (std::uint32_t number = 100; number < 300; ++number)
            known += targets_.asker(number).has_value();
        if (known > targets_.size() + kMostGone) fail("%zu askers are known", known);
    }

    Input& input_;
    const std::uint8_t shared_;  // the flag of names that are not RC
    FakeContext context_;
    ibv_pd pd_{context_.get(), 0};
    std::list<Asked> asked_;
    const verbs::ConnectionAttributes own_ = own();
    ConnectorTargets targets_;
    ConnectorRequests requests_;
    std::vector<Datagram> sent_;
    ConnectorRequests::Clock::time_point now_{};
};

}  // namespace
}  // namespace heddle::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input bytes(data, size);
    input = &bytes;
    { heddle::protocol::Tables(bytes).run(); }
    if (!queue_pairs.empty()) fail("%zu queue pairs are left", queue_pairs.size());
    return 0;
}
