// SPDX-License-Identifier: BSD-2-Clause
#include "predict/layout.h"

#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

// libmlx5's table of 16 uUARs: the last four for one queue pair each, then the others in turn.
std::uint32_t static_uuar(std::uint32_t number) {
    return number < 4 ? 12 + number : 1 + (number - 4) % 11;
}

// Where a context's queue pair is, by the order in which these are made. A page has two uUARs.
struct Spot {
    std::uint32_t page, uuar;
};
Spot spot_of(Placement placement, std::uint32_t number) {
    switch (placement) {
        case Placement::kIndependent:
            return {number, 2 * number};
        case Placement::kDoubled:  // every other page stays idle
            return {2 * number, 4 * number};
        case Placement::kPaired:
            return {number / 2, number};
        default:
            return {static_uuar(number) / 2, static_uuar(number)};
    }
}

// The queue pairs of a context: a group of threads has each `qps_per_thread` times.
class Context {
public:
    Context(const Machine& machine, const Layout& layout)
        : machine_(machine),
          placement_(layout.sharing.placement),
          is_alone_(layout.sharing.qp == 1),
          of_node_(layout.processes * layout.threads / layout.sharing.qp * layout.qps_per_thread) {
        const std::uint32_t groups = layout.sharing.context / layout.sharing.qp;
        for (std::uint32_t number = 0; number < groups * layout.qps_per_thread; ++number)
            spots_.push_back({spot_of(placement_, number), number % groups});
    }
    std::uint32_t size() const { return static_cast<std::uint32_t>(spots_.size()); }

    // first: the number of its first queue pair among all; locks are named by these numbers.
    QueueUse use(std::uint32_t number, std::uint32_t first, std::uint32_t cq) const {
        const auto& [mine, group] = spots_[number];
        bool shares_page = false, shares_uuar = false;
        for (const auto& [other, its_group] : spots_) {
            if (its_group == group || other.page != mine.page) continue;
            (other.uuar == mine.uuar ? shares_uuar : shares_page) = true;
        }
        const std::uint32_t adjoining = placement_ == Placement::kDoubled ? 0 : size();
        QueueUse found;
        found.qp = first + number;
        found.cq = cq;
        found.blueflame_extra = machine_.placement_cost(shares_page, adjoining, of_node_);
        // libmlx5 spares the lock of what is in a thread domain.
        found.takes_lock = placement_ == Placement::kDriver && is_alone_;
        // A thread domain's uUAR is its own, and has no lock.
        if (placement_ == Placement::kDriver && shares_uuar)
            found.uuar_lock = kUuars * first + mine.uuar;
        return found;
    }

private:
    static constexpr std::uint32_t kUuars = 16;
    const Machine& machine_;
    Placement placement_;
    bool is_alone_;                                      // a thread with its queue pairs
    std::uint32_t of_node_;                              // queue pairs of all contexts
    std::vector<std::pair<Spot, std::uint32_t>> spots_;  // with the group of threads that drives it
};

}  // namespace

std::vector<ThreadPlan> place(const Machine& machine, const Layout& layout) {
    const Sharing& sharing = layout.sharing;
    HEDDLE_ASSERT(layout.threads % sharing.context == 0 && sharing.context % sharing.qp == 0 &&
                      layout.threads % sharing.cq == 0 && layout.threads % sharing.buffer == 0,
                  "threads that share come in whole groups");
    const Context context(machine, layout);
    const std::uint32_t groups = sharing.context / sharing.qp;
    std::vector<ThreadPlan> all;
    for (std::uint32_t process = 0; process < layout.processes; ++process)
        for (std::uint32_t thread = 0; thread < layout.threads; ++thread) {
            const auto number = static_cast<std::uint32_t>(all.size());
            const std::uint32_t first = number / sharing.context * context.size();
            ThreadPlan plan;
            plan.cq = number / sharing.cq;
            for (std::uint32_t queue = 0; queue < layout.qps_per_thread; ++queue)
                plan.queues.push_back(context.use(
                    queue * groups + number % sharing.context / sharing.qp, first, plan.cq));
            plan.payload_line = number / sharing.buffer;
            plan.group = process;
            all.push_back(std::move(plan));
        }
    return all;
}

}  // namespace heddle::predict
