// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/bench_report.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <infiniband/mlx5dv.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

// "libmlx5.so.1.24.44.0": rdma-core's version is in the file's name, and nowhere to be asked for.
std::string library_of(const void* function) {
    Dl_info info{};
    char path[PATH_MAX];
    if (::dladdr(function, &info) == 0 || ::realpath(info.dli_fname, path) == nullptr) return "";
    const std::string text = path;
    return text.substr(text.rfind('/') + 1);
}

std::string processor_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name") && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "";
}

std::string list_of(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers)
        text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
}

}  // namespace

Json host_facts() {
    utsname system{};
    ::uname(&system);
    const unsigned hwloc = hwloc_get_api_version();
    return {{"name", system.nodename},
            {"kernel", std::string(system.sysname) + " " + system.release},
            {"machine", system.machine},
            {"processor", processor_model()},
            {"processors_online", ::sysconf(_SC_NPROCESSORS_ONLN)},
            {"heddle", HEDDLE_VERSION},
            {"libibverbs", library_of(reinterpret_cast<void*>(&ibv_fork_init))},
            {"libmlx5", library_of(reinterpret_cast<void*>(&mlx5dv_query_device))},
            {"hwloc_api", std::to_string(hwloc >> 16) + "." + std::to_string(hwloc >> 8 & 0xff)}};
}

Json device_facts(const DeviceInfo& device) {
    const auto kernel = uar_kernel(device.name);
    return {{"device", device.name},
            {"software_hca", device.software},
            {"firmware", device.firmware},
            {"board", device.board},
            {"thread_domains", device.thread_domains},
            {"uar_kernel", !kernel                         ? Json(nullptr)
                           : *kernel == UarKernel::kStatic ? Json("static")
                                                           : Json("dynamic")}};
}

Json sample_facts(const std::vector<double>& samples) {
    return {{"mmsgs_per_s", median(samples)},
            {"quartiles", {quartile(samples, 1), quartile(samples, 3)}},
            {"samples", samples}};
}

Json cpu_sample_facts(const std::vector<double>& samples) {
    return {{"mmsgs_per_cpu_s", median(samples)},
            {"cpu_quartiles", {quartile(samples, 1), quartile(samples, 3)}},
            {"cpu_samples", samples}};
}

Json usage_facts(const Usage& u) {
    return {{"contexts", u.contexts},
            {"pds", u.pds},
            {"mrs", u.mrs},
            {"qps", u.qps},
            {"cqs", u.cqs},
            {"uars", json_or_null(u.uars)},
            {"uuars", json_or_null(u.uuars)},
            {"uuars_used", json_or_null(u.uuars_used)},
            {"driver_bytes", u.bytes}};
}

Json sharing_facts(const Sharing& s) {
    return {{"context", s.context}, {"pd", s.pd}, {"mr", s.mr},
            {"cq", s.cq},           {"qp", s.qp}, {"buffer", s.buffer}};
}

std::string text_of(const std::optional<std::uint32_t>& value) {
    return value ? std::to_string(*value) : "-";
}

const char* text_of(Path path) { return path == Path::kVerbs ? "verbs" : "direct"; }

std::string title_of(const DeviceInfo& device) {
    return device.name + (device.software ? " (software HCA)" : "") +
           (device.thread_domains ? ""
                                  : " (no thread domains: 2xdynamic, dynamic and "
                                    "shared-dynamic are static)");
}

std::string text_of(const bench::Pinning& p) {
    const std::size_t threads = p.processors.size();
    HEDDLE_ASSERT(threads != 0 && p.cores != 0, "each thread has a processor");
    std::vector<int> distinct = p.processors;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    return std::to_string(threads) + (threads == 1 ? " thread on " : " threads on ") +
           std::to_string(p.cores) + (p.cores == 1 ? " core" : " cores") +
           (p.oversubscribed ? " (more threads than cores: they take turns)" : "") +
           ", pinned to " + (distinct.size() == 1 ? "processor " : "processors ") +
           list_of(distinct) + (p.near ? ", near to the device" : "");
}

Progress::Progress(std::size_t steps) : steps_(steps), terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
    if (terminal_ && shown_) std::fprintf(stderr, "\r\033[K");
}

void Progress::step(const std::string& what) {
    const Clock::time_point now = Clock::now();
    const auto since = now - last_;
    ++begun_;
    HEDDLE_ASSERT(begun_ <= steps_, "the experiment announced fewer steps");
    if (since < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000)))
        return;
    last_ = now;
    shown_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double left =
        seconds / static_cast<double>(begun_ - 1) * static_cast<double>(steps_ - begun_ + 1);
    std::fprintf(stderr, "%s%zu of %zu, %.0f s left: %s%s", terminal_ ? "\r\033[K" : "", begun_,
                 steps_, left, what.c_str(), terminal_ ? "" : "\n");
}

}  // namespace heddle::cli
