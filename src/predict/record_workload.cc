// SPDX-License-Identifier: BSD-2-Clause
// What recorded processes did, as a workload: on the endpoints that they had, or on others.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "heddle/detail/assert.h"
#include "predict/layout.h"
#include "predict/record.h"

namespace heddle::predict {
namespace {

// Numbers of one record that are not used by the next: barriers and cache lines, of which a record
// has at most so many.
constexpr std::uint32_t kBarriers = 1025, kLines = 65537;
// What may be left out where each queue pair needs one driver.
constexpr double kMinority = 0.05;

// Which thread takes a completion is this machine's scheduling. A thread waits for its own ones:
// for as many as it had taken then, its own or not, but never for more than it had posted.
// Where completions of receives came from the same CQ, they are taken out by their share.
class Waits {
public:
    explicit Waits(const Record& record) : record_(record) {}
    void posted(const Step& step) {
        of_[step.cq].signaled += std::uint64_t{step.cqes} * step.times;
    }
    // Own completions to wait for after that poll.
    std::uint32_t polled(const Step& step) {
        const Record::Cq& cq = record_.cqs[step.cq];
        OfCq& own = of_[step.cq];
        const double share = cq.polled > cq.signaled
                                 ? static_cast<double>(cq.signaled) / static_cast<double>(cq.polled)
                                 : 1;
        own.taken += share * static_cast<double>(step.cqes) * step.times;
        const auto target =
            std::min(own.signaled, static_cast<std::uint64_t>(std::llround(own.taken)));
        if (target <= own.waited) return 0;
        const std::uint64_t need = target - own.waited;
        own.waited = target;
        return static_cast<std::uint32_t>(need);
    }

private:
    struct OfCq {
        std::uint64_t signaled = 0, waited = 0;
        double taken = 0;
    };
    const Record& record_;
    std::map<std::uint32_t, OfCq> of_;
};

// The steps of a thread: posts to the queue pairs of `queues` only, by their index there.
std::vector<Step> steps_of(const Record& record, const std::vector<Step>& all,
                           const std::vector<std::uint32_t>& queues, std::uint32_t first_barrier,
                           std::uint32_t first_line) {
    Waits waits(record);
    std::vector<Step> steps;
    for (Step step : all) {
        if (step.kind == Step::Kind::kPost) {
            const auto found = std::ranges::find(queues, step.queue);
            if (found == queues.end()) continue;
            waits.posted(step);
            step.queue = static_cast<std::uint32_t>(found - queues.begin());
            step.payload_line += first_line;
        } else if (step.kind == Step::Kind::kWait) {
            step.cqes = waits.polled(step);
            step.times = 1;
            if (step.cqes == 0) continue;
        } else {
            step.group += first_barrier;
        }
        steps.push_back(step);
    }
    return steps;
}

// Which threads post to each queue pair, and how many WQEs.
using Drivers = std::vector<std::map<std::uint32_t, std::uint64_t>>;
Drivers drivers_of(const Record& record) {
    Drivers drivers(record.qps.size());
    for (std::uint32_t thread = 0; thread < record.threads.size(); ++thread)
        for (const Step& step : record.threads[thread])
            if (step.kind == Step::Kind::kPost)
                drivers[step.queue][thread] += std::uint64_t{step.wqes} * step.times;
    return drivers;
}

// Where the queue pairs of a record are; see layout.cc for the rules.
class Places {
public:
    Places(const Record& record, const Machine& machine, std::size_t of_node)
        : record_(record), machine_(machine), drivers_(drivers_of(record)), of_node_(of_node) {
        for (const Record::Qp& qp : record.qps)
            ++pages_[{qp.context, qp.page}];
    }

    QueueUse use(std::uint32_t number, std::uint32_t first_qp, std::uint32_t first_cq) const {
        const Record::Qp& qp = record_.qps[number];
        bool shares_page = false;
        for (std::uint32_t other = 0; other < record_.qps.size(); ++other) {
            const Record::Qp& its = record_.qps[other];
            shares_page =
                shares_page || (its.context == qp.context && its.page == qp.page &&
                                its.uuar != qp.uuar && drivers_[other] != drivers_[number]);
        }
        QueueUse use;
        use.qp = first_qp + number;
        use.cq = first_cq + qp.cq;
        use.depth = qp.depth;
        use.blueflame_extra = machine_.placement_cost(shares_page, adjoining(qp.context), of_node_);
        use.takes_lock = qp.has_lock && drivers_[number].size() == 1;
        if (qp.has_uuar_lock) use.uuar_lock = first_qp + first_on_uuar(qp);
        return use;
    }

private:
    // It names the lock of their uUAR.
    std::uint32_t first_on_uuar(const Record::Qp& qp) const {
        const auto found = std::ranges::find_if(record_.qps, [&](const Record::Qp& other) {
            return other.context == qp.context && other.page == qp.page && other.uuar == qp.uuar;
        });
        return static_cast<std::uint32_t>(found - record_.qps.begin());
    }
    // Queue pairs of a context beside whose page another one is in use.
    std::size_t adjoining(std::uint32_t context) const {
        std::size_t count = 0;
        for (const auto& [page, users] : pages_) {
            if (page.first != context) continue;
            const bool has_neighbour =
                pages_.contains({context, page.second + 1}) ||
                (page.second != 0 && pages_.contains({context, page.second - 1}));
            if (has_neighbour) count += users;
        }
        return count;
    }

    const Record& record_;
    const Machine& machine_;
    const Drivers drivers_;
    const std::size_t of_node_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> pages_;  // by context and page
};

// The queue pairs that each thread drives.
using Driven = std::map<std::uint32_t, std::vector<std::uint32_t>>;
bool is_minor(std::uint64_t part, std::uint64_t whole) {
    return static_cast<double>(part) <= kMinority * static_cast<double>(whole);
}
// A queue pair's driver posts more to it than all others. What others post is left out, as are
// queue pairs without a driver, and threads that post next to nothing beside the busiest one: those
// by which a program connects, for instance. Nothing if that is too much of what the process posts.
std::optional<Driven> driven_alone(const Record& record) {
    Driven driven;
    std::map<std::uint32_t, std::uint64_t> by_thread;
    std::uint64_t total = 0, kept = 0, busiest = 0;
    const Drivers drivers = drivers_of(record);
    for (std::uint32_t qp = 0; qp < drivers.size(); ++qp) {
        std::uint64_t all = 0, most = 0;
        std::uint32_t driver = 0;
        for (const auto& [thread, wqes] : drivers[qp]) {
            all += wqes;
            if (wqes > most) std::tie(most, driver) = std::tie(wqes, thread);
        }
        total += all;
        if (2 * most <= all) continue;
        driven[driver].push_back(qp);
        by_thread[driver] += most;
        busiest = std::max(busiest, by_thread[driver]);
    }
    for (const auto& [thread, wqes] : by_thread) {
        if (is_minor(wqes, busiest))
            driven.erase(thread);
        else
            kept += wqes;
    }
    if (!is_minor(total - kept, total)) return std::nullopt;
    return driven;
}

}  // namespace

Workload workload_of(const std::vector<Record>& records, const Machine& machine) {
    Workload work;
    std::size_t of_node = 0;
    for (const Record& record : records)
        of_node += record.qps.size();
    std::uint32_t number = 0, first_qp = 0, first_cq = 0;
    for (const Record& record : records) {
        const Places places(record, machine, of_node);
        for (const std::vector<Step>& all : record.threads) {
            const std::vector<std::uint32_t> queues = queues_of(all);
            ThreadPlan plan;
            for (const std::uint32_t queue : queues)
                plan.queues.push_back(places.use(queue, first_qp, first_cq));
            plan.steps = steps_of(record, all, queues, number * kBarriers, number * kLines);
            for (Step& step : plan.steps)
                step.cq += first_cq;
            if (plan.queues.empty() || plan.steps.empty()) continue;
            plan.cq = plan.queues.front().cq;
            work.threads.push_back(std::move(plan));
        }
        ++number;
        first_qp += static_cast<std::uint32_t>(record.qps.size());
        first_cq += static_cast<std::uint32_t>(record.cqs.size());
    }
    return work;
}

std::optional<Workload> workload_of(const std::vector<Record>& records, Category category,
                                    const Machine& machine) {
    std::vector<Driven> driven;
    std::vector<const Record*> posting;  // processes that post nothing, only answer, are left out
    for (const Record& record : records) {
        auto its = driven_alone(record);
        if (!its) return std::nullopt;
        if (its->empty()) continue;
        driven.push_back(std::move(*its));
        posting.push_back(&record);
    }
    if (driven.empty()) return std::nullopt;
    // Places for as many threads and queue pairs as any process and thread has.
    std::size_t threads = 0, queues = 0;
    for (const Driven& process : driven) {
        threads = std::max(threads, process.size());
        for (const auto& thread : process)
            queues = std::max(queues, thread.second.size());
    }
    const std::vector<ThreadPlan> places =
        place(machine, {sharing_of(category, static_cast<std::uint32_t>(threads)),
                        static_cast<std::uint32_t>(posting.size()),
                        static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(queues)});
    HEDDLE_ASSERT(places.size() == threads * posting.size(), "each thread has a place");
    Workload work;
    for (std::uint32_t process = 0; process < posting.size(); ++process) {
        std::size_t at = process * threads;
        for (const auto& [thread, its] : driven[process]) {
            ThreadPlan& plan = work.threads.emplace_back(places[at++]);
            plan.queues.resize(its.size());
            plan.steps = steps_of(*posting[process], posting[process]->threads[thread], its,
                                  process * kBarriers, process * kLines);
            for (Step& step : plan.steps)
                step.cq = plan.cq;
            for (std::size_t queue = 0; queue < its.size(); ++queue)
                plan.queues[queue].depth = posting[process]->qps[its[queue]].depth;
            if (plan.steps.empty()) return std::nullopt;
        }
    }
    return work;
}

}  // namespace heddle::predict
