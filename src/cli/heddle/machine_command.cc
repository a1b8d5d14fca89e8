// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/machine_command.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/heddle/bench_report.h"
#include "cli/heddle/commands.h"
#include "experiments/common/pinning.h"
#include "experiments/common/team.h"
#include "experiments/message_rate_peer.h"
#include "heddle/device.h"
#include "heddle/locality.h"
#include "predict/calibration.h"

namespace heddle::cli {
namespace {

constexpr std::uint32_t kMostThreads = 16;  // of the paper, whose experiments are run

std::string name_of(const DeviceInfo& device, std::size_t cores) {
    const Json host = host_facts();
    return device.name + (device.software ? " (software HCA)" : "") + ", firmware " +
           device.firmware + ", " + std::to_string(cores) + " processors of " +
           host.value("name", "this host");
}

bool write(const std::string& file, const std::string& text) {
    if (file == "-") return std::fputs(text.c_str(), stdout) >= 0;
    std::ofstream out(file);
    return static_cast<bool>(out << text << std::flush);
}

// Whether write() would succeed. What is there stays.
bool can_write(const std::string& file) {
    if (file == "-") return true;
    std::error_code none;
    const bool was_there = std::filesystem::exists(file, none);
    const bool is_open = std::ofstream(file, std::ios::app).is_open();
    const int error = errno;
    if (is_open && !was_there) std::filesystem::remove(file, none);
    errno = error;
    return is_open;
}

int say_not_written(const std::string& file) {
    std::fprintf(stderr, "heddle calibrate: %s could not be written: %s\n", file.c_str(),
                 std::strerror(errno));
    return kFailed;
}

}  // namespace

int write_machine(const std::string& device_name, const std::string& file) {
    const DeviceInfo device = heddle::device(device_name);
    if (!can_write(file)) return say_not_written(file);  // before it measures for 15 s
    if (device.software)
        std::fprintf(stderr,
                     "heddle calibrate: %s is a software HCA: the values are those of this "
                     "simulator, and say nothing of an adapter\n",
                     device.name.c_str());
    bench::TeamOptions options;
    options.patience = bench::Seconds(1e6);
    return bench::run_with_rate_peer(options, device.name, [&](bench::Team& team) {
        const Locality place = locality_of(device);
        const std::size_t cores = bench::pinning(place, 1).cores;
        predict::CalibrationRequest request;
        request.threads = static_cast<std::uint32_t>(
            std::min<std::size_t>(kMostThreads, std::bit_floor(std::max<std::size_t>(cores, 1))));
        request.base.device = device.name;
        request.base.seconds = 0.03;
        request.base.processors = bench::pinning(place, request.threads).processors;
        request.name = name_of(device, cores);
        const predict::MachineFile machine =
            predict::calibrate_machine(request, team, [](const std::string& line) {
                std::fprintf(stderr, "heddle calibrate: %s\n", line.c_str());
            });
        return write(file, predict::to_toml(machine)) ? 0 : say_not_written(file);
    });
}

}  // namespace heddle::cli
