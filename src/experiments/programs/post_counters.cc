// SPDX-License-Identifier: BSD-2-Clause
// post_counters [--json]: what the processor counts for an 8-byte inline RDMA write, posted and its
// completion polled, by libibverbs and directly: cycles, instructions, misses of the last-level
// cache, mispredicted branches, and time. By perf_event_open(2), of this thread in user mode; the
// two paths in turns, medians. A virtual machine may have no such counters: what is not there is
// null in JSON, with the reason beside it. On a software HCA the thread that posts also executes,
// and that is counted with it.
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/common/measure.h"
#include "experiments/programs/self_writes.h"
#include "heddle/detail/assert.h"
#include "heddle/endpoint.h"

namespace heddle::bench {
namespace {

struct Kind {
    const char* name;
    std::uint32_t type;
    std::uint64_t config;
};
constexpr Kind kKinds[] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {"task_clock_ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
};
constexpr std::size_t kNumber = std::size(kKinds);
constexpr int kTurns = 41, kOperations = 2000;

// One counter of the calling thread. Each is a group of its own: processors differ in how many
// they count at once, and the kernel says for how long of the time this one was counted.
class Counter {
public:
    explicit Counter(const Kind& kind) {
        perf_event_attr attributes{};
        attributes.size = sizeof attributes;
        attributes.type = kind.type;
        attributes.config = kind.config;
        attributes.disabled = 1;
        attributes.exclude_kernel = kind.type == PERF_TYPE_HARDWARE;
        attributes.exclude_hv = 1;
        attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        descriptor_ = static_cast<int>(
            syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
        if (descriptor_ < 0) why_not_ = reason(errno);
        HEDDLE_ASSERT((descriptor_ < 0) == !why_not_.empty(), "what is not counted has a reason");
    }
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;
    ~Counter() {
        if (descriptor_ >= 0) close(descriptor_);
    }

    const std::string& why_not() const noexcept { return why_not_; }
    void start() noexcept {
        if (descriptor_ < 0) return;
        ioctl(descriptor_, PERF_EVENT_IOC_RESET, 0);
        ioctl(descriptor_, PERF_EVENT_IOC_ENABLE, 0);
    }
    void stop() noexcept {
        if (descriptor_ >= 0) ioctl(descriptor_, PERF_EVENT_IOC_DISABLE, 0);
    }
    // Since start(); negative: it was not counted meanwhile.
    double value() const noexcept {
        std::uint64_t counted[3]{};  // value, time enabled, time running: both since it was opened
        if (descriptor_ < 0 || read(descriptor_, counted, sizeof counted) != sizeof counted ||
            counted[2] == 0)
            return -1;
        HEDDLE_ASSERT(counted[2] <= counted[1], "a counter runs while it is enabled");
        return static_cast<double>(counted[0]) *
               (static_cast<double>(counted[1]) / static_cast<double>(counted[2]));
    }

private:
    static std::string reason(int error) {
        if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
            return "this processor, or virtual machine, does not count it";
        if (error == EACCES || error == EPERM)
            return "not permitted (kernel.perf_event_paranoid, or a container's rules)";
        return std::strerror(error);
    }
    int descriptor_ = -1;
    std::string why_not_;
};

// An endpoint that writes to itself.
class Loop {
public:
    explicit Loop(Path path) : set_("", Category::kDynamic, 1, options(path)) {
        set_[0].connect(set_[0].address());
    }
    void run(int count) { write_to_itself(set_[0], count); }

private:
    static EndpointOptions options(Path path) {
        EndpointOptions options;
        options.path = path;
        return options;
    }
    EndpointSet set_;
};

struct Way {
    const char* name;
    Path path;
};
constexpr Way kWays[] = {{"verbs", Path::kVerbs}, {"direct", Path::kDirect}};

int measure(bool json) {
    std::vector<std::unique_ptr<Counter>> counters;
    for (const Kind& kind : kKinds)
        counters.push_back(std::make_unique<Counter>(kind));
    std::vector<double> samples[std::size(kWays)][kNumber];
    std::vector<std::unique_ptr<Loop>> loops;
    for (const Way& way : kWays)
        loops.push_back(std::make_unique<Loop>(way.path));
    for (int turn = -1; turn < kTurns; ++turn)
        for (std::size_t way = 0; way < std::size(kWays); ++way)
            for (std::size_t i = 0; i < kNumber; ++i) {  // one at a time: none is multiplexed
                if (!counters[i]->why_not().empty()) continue;
                counters[i]->start();
                loops[way]->run(kOperations);
                counters[i]->stop();
                const double value = counters[i]->value();
                if (turn >= 0 && value >= 0) samples[way][i].push_back(value / kOperations);
            }
    if (!json)
        std::printf(
            "An 8-byte inline RDMA write and the poll of its completion\n\n%-14s %12s "
            "%12s\n",
            "", kWays[0].name, kWays[1].name);
    nlohmann::ordered_json line{{"experiment", "post-counters"}};
    for (std::size_t i = 0; i < kNumber; ++i) {
        const Kind& kind = kKinds[i];
        nlohmann::ordered_json& of = line["counters"][kind.name];
        const bool is_there = !samples[0][i].empty() && !samples[1][i].empty();
        if (is_there) {
            for (std::size_t way = 0; way < std::size(kWays); ++way)
                of[kWays[way].name] = samples[way][i];
            if (!json)
                std::printf("%-14s %12.2f %12.2f\n", kind.name, median(samples[0][i]),
                            median(samples[1][i]));
        } else {
            const std::string why = counters[i]->why_not().empty()
                                        ? "its counter was in use by others"
                                        : counters[i]->why_not();
            of["why_not"] = why;
            if (!json) std::printf("%-14s not counted: %s\n", kind.name, why.c_str());
        }
    }
    if (json) std::printf("%s\n", line.dump().c_str());
    return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
    const std::string first = argc > 1 ? argv[1] : "";
    if (argc > 2 || (!first.empty() && first != "--json")) {
        std::fprintf(stderr,
                     "usage: post_counters [--json]\n"
                     "What the processor counts for a write that is posted and polled, by each "
                     "path; needs an RDMA\ndevice, for instance `softhca run -- post_counters`.\n");
        return first == "--help" ? 0 : 2;
    }
    try {
        return heddle::bench::measure(first == "--json");
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "post_counters: %s\n", error.what());
        return 1;
    }
}
