// SPDX-License-Identifier: BSD-2-Clause
#include "predict/bounds.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

// What a workload asks of each resource: ns for `messages` of them.
struct Demand {
    double messages = 0;
    std::array<double, kResources> ns = {};  // of the busiest of a kind
    void busiest(Resource resource, double time) {
        double& most = ns[static_cast<std::size_t>(resource)];
        most = std::max(most, time);
    }
};

struct Users {
    std::map<std::uint32_t, std::uint32_t> qps, cqs, uuars;
};

Users users_of(const Workload& w) {
    Users users;
    for (const ThreadPlan& plan : w.threads) {
        ++users.cqs[plan.cq];
        for (const QueueUse& use : plan.queues) {
            ++users.qps[use.qp];
            if (use.uuar_lock) ++users.uuars[*use.uuar_lock];
        }
    }
    return users;
}

// A loop in which every thread sends one message on each of its queues.
Demand demand_of_loop(const Workload& w, const Machine& m) {
    const Users users = users_of(w);
    const double p = w.post_list, q = w.signal_every;
    const bool blueflame = w.post_list == 1;
    std::map<std::uint32_t, double> engines, lines, qp_locks, cq_locks, uuar_locks;
    Demand demand;
    double payloads = 0;
    for (const ThreadPlan& plan : w.threads) {
        double processor = 0;
        // A completion of an own message costs least, wherever it is taken.
        const double completion = std::min(m.own_completion, m.other_completion) / q;
        for (const QueueUse& use : plan.queues) {
            const double call = m.post_call + (blueflame ? use.blueflame_extra : 0) +
                                (use.takes_lock ? m.atomic : 0);
            const double prepare = m.prepare + w.message_extra;
            processor += call / p + prepare + completion;
            engines[use.qp] += m.qp_wqe + (w.inlined ? 0 : m.qp_payload) + m.qp_completion / q;
            if (!w.inlined) {
                lines[plan.payload_line] += m.same_line;
                payloads += m.payload_read;
            }
            if (users.qps.at(use.qp) > 1)
                qp_locks[use.qp] += (call + m.atomic) / p + prepare;
            else if (use.uuar_lock && users.uuars.at(*use.uuar_lock) > 1 && blueflame)
                uuar_locks[*use.uuar_lock] += call + m.atomic;
            if (users.cqs.at(plan.cq) > 1) cq_locks[plan.cq] += completion;
            demand.messages += 1;
        }
        demand.busiest(Resource::kProcessor, processor);
    }
    const auto most = [&](Resource resource, const std::map<std::uint32_t, double>& times) {
        for (const auto& [number, time] : times)
            demand.busiest(resource, time);
    };
    most(Resource::kEngine, engines);
    most(Resource::kCacheLine, lines);
    most(Resource::kQpLock, qp_locks);
    most(Resource::kCqLock, cq_locks);
    most(Resource::kUuarLock, uuar_locks);
    demand.busiest(Resource::kPayloadReads, payloads);
    demand.busiest(Resource::kLink, demand.messages * m.link);
    return demand;
}

}  // namespace

std::vector<Bound> bounds(const Workload& workload, const Machine& machine) {
    HEDDLE_ASSERT(!workload.threads.empty() && !workload.is_recorded(),
                  "bounds are of a workload's loop");
    const Demand demand = demand_of_loop(workload, machine);
    std::vector<Bound> all;
    for (std::size_t i = 0; i < kResources; ++i)
        if (demand.ns[i] > 0)
            all.push_back({static_cast<Resource>(i), demand.messages / demand.ns[i] * 1e3});
    std::ranges::sort(all, {}, &Bound::per_microsecond);
    return all;
}

}  // namespace heddle::predict
