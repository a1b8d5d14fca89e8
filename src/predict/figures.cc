// SPDX-License-Identifier: BSD-2-Clause
#include "predict/figures.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <tuple>

#include "experiments/figures.h"
#include "heddle/detail/assert.h"
#include "predict/simulator.h"

namespace heddle::predict {
namespace {

constexpr std::uint32_t kCacheLine = 64;  // bytes

Point message_rate_point(const std::string& figure, const bench::FigurePoint& from) {
    Point point = point_of(from.rate);
    point.figure = figure;
    point.curve = from.series;
    point.x = std::to_string(from.x);
    point.paper = from.paper->mmsgs_per_s;
    return point;
}

// A message a post, each with a completion.
Workload one_by_one() {
    Workload work;
    work.post_list = work.signal_every = 1;
    return work;
}

std::optional<Category> category_of(std::string_view paper_name) {
    constexpr std::pair<std::string_view, Category> kNames[] = {
        {"MPI everywhere", Category::kMpiEverywhere},
        {"2xDynamic", Category::k2xDynamic},
        {"Dynamic", Category::kDynamic},
        {"Shared Dynamic", Category::kSharedDynamic},
        {"Static", Category::kStatic},
        {"MPI+threads", Category::kMpiThreads}};
    for (const auto& [name, category] : kNames)
        if (name == paper_name) return category;
    return std::nullopt;
}

// A line of icpads18-applications.csv; nothing for reads, which the model does not have.
std::optional<Point> application_point(std::string_view line) {
    const std::vector<std::string_view> cells = bench::cells_of(line);
    if (cells.size() != 5 || cells[1] == "RDMA read") return std::nullopt;
    const std::optional<Category> category = category_of(cells[2]);
    if (!category) return std::nullopt;
    Point point;
    point.figure = cells[0];
    point.curve = cells[1];
    point.x = cells[2];
    point.work = one_by_one();
    std::from_chars(cells[3].data(), cells[3].data() + cells[3].size(), point.paper);
    std::uint32_t processes = 1, threads = kPaperThreads;
    if (point.figure == "14") {  // its curves are processes.threads of a node
        const char* end = cells[1].data() + cells[1].size();
        const auto dot = std::from_chars(cells[1].data(), end, processes);
        std::from_chars(dot.ptr + 1, end, threads);
        point.work.rows = kStencilRows / threads;
        point.nodes = 2;
        // Alone, a thread pays for the shared depth and the counter of what it waits for, too.
        if (*category == Category::kMpiThreads && threads == 1) point.atomics = 3;
    }
    point.layout = {sharing_of(*category, threads), processes, threads,
                    point.figure == "14" ? 2u : 1u};
    return point;
}

}  // namespace

std::vector<Point> paper_points() {
    std::vector<Point> points;
    bench::MessageRate base;
    base.threads = kPaperThreads;
    for (const std::string& name : bench::figure_names()) {
        if (name == "8b") continue;  // the paper has one set of values for both parts
        for (const bench::FigurePoint& each : bench::figure(name, base).points)
            if (each.paper) points.push_back(message_rate_point(name == "8a" ? "8" : name, each));
    }
    std::string_view file = bench::kIcpads18Applications;
    while (!file.empty()) {
        if (std::optional<Point> point = application_point(bench::take_line(file)))
            points.push_back(std::move(*point));
    }
    HEDDLE_ASSERT(!points.empty(), "the papers' values are compiled in");
    return points;
}

Point point_of(const bench::MessageRate& rate) {
    Point point;
    // Contexts that are not shared are processes of their own; they differ in nothing else here.
    point.layout = {rate.sharing, 1, rate.threads, 1};
    // What is alike for the model: a buffer of theirs, or buffers on one cache line.
    const std::uint32_t on_a_line = kCacheLine / std::max(rate.bytes, rate.buffer_alignment);
    if (on_a_line > 1)
        point.layout.sharing.buffer =
            std::max(rate.sharing.buffer, std::gcd(rate.threads, on_a_line));
    point.work.post_list = rate.post_list;
    point.work.signal_every = rate.signal_every;
    point.work.depth = rate.depth;
    point.work.inlined = rate.inlining;
    return point;
}

bool Point::is_configured_as(const Point& other) const {
    const auto key = [](const Point& p) {
        const Sharing& s = p.layout.sharing;
        return std::tuple(s.context, s.cq, s.qp, s.buffer, s.placement, p.layout.processes,
                          p.layout.threads, p.layout.qps_per_thread, p.work.post_list,
                          p.work.signal_every, p.work.depth, p.work.inlined, p.work.rows, p.nodes,
                          p.atomics);
    };
    return key(*this) == key(other);
}

Workload workload_of(const Point& point, const Machine& machine) {
    Workload work = point.work;
    work.threads = place(machine, point.layout);
    work.message_extra =
        point.atomics * machine.atomic + (work.rows != 0 ? machine.kernel_message : 0);
    return work;
}

double predicted(const Point& point, const Machine& machine) {
    return point.nodes * simulate(workload_of(point, machine), machine).per_microsecond;
}

std::optional<double> predicted(const bench::MessageRate& rate, const MachineFile& file) {
    if (rate.bytes > file.bytes) return std::nullopt;
    return predicted(point_of(rate), file.machine);
}

}  // namespace heddle::predict
