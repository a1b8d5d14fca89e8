// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/live_processes.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "cli/common/text.h"
#include "heddle/detail/assert.h"
#include "softhca/view/snapshot.h"

namespace heddle::cli {
namespace {

using cli_common::file_contents;

namespace fs = std::filesystem;
using provider::LiveProcess;

// The target of the segment's link in /proc/PID/fd.
const std::string kLink = std::string("/memfd:") + provider::kLiveName + " (deleted)";

std::optional<int> number_of(const std::string& name) {
    int value = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data(), end, value);
    if (error != std::errc{} || rest != end || value <= 0) return {};
    return value;
}

// The number of the process in its own PID namespace: in a container it differs from ours.
int own_number(const fs::path& process) {
    std::istringstream status(file_contents(process / "status"));
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("NSpid:")) continue;
        std::istringstream numbers(line.substr(6));
        int number = 0;
        while (numbers >> number) {
        }
        return number;
    }
    return 0;
}

struct Found {
    bool any = false;  // it has a segment
    std::optional<LiveProcess> live;
};

class Descriptor {
public:
    Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

private:
    int fd_;
};

// The name of a link is the process's choice: it may be of a FIFO or a device, which an open()
// waits for or acts upon. O_PATH opens none of them, and what it found is then opened by its
// number.
Found read_segment(const fs::path& link) {
    Found found;
    const Descriptor seen(link, O_PATH);
    struct stat size {};
    if (seen.get() < 0 || ::fstat(seen.get(), &size) != 0 || !S_ISREG(size.st_mode) ||
        size.st_size <= 0)
        return found;
    const Descriptor file("/proc/self/fd/" + std::to_string(seen.get()), O_RDONLY);
    // Only what cannot shrink under our eyes.
    const int seals = file.get() < 0 ? -1 : ::fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file.get(), &size) != 0) return found;
    const auto bytes = static_cast<std::size_t>(size.st_size);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return found;
    found.any = true;
    found.live = provider::read_live({static_cast<const std::byte*>(memory), bytes});
    ::munmap(memory, bytes);
    return found;
}

Found look_at(const fs::path& process) {
    std::error_code error;
    for (const auto& descriptor : fs::directory_iterator(process / "fd", error)) {
        std::error_code gone;
        if (fs::read_symlink(descriptor.path(), gone) != kLink) continue;
        Found found = read_segment(descriptor.path());
        // The segment may be that of a parent that the process was forked from.
        if (found.live && found.live->pid != own_number(process)) found = {};
        if (found.any) return found;
    }
    return {};
}

std::string command_of(const fs::path& process) {
    std::string command = file_contents(process / "comm");
    command.erase(std::min(command.find('\n'), command.size()));
    return cli_common::printable(command, 15);
}

// Why a process that was asked for shows nothing.
AbsentProcess absent_process(int pid, const fs::path& process) {
    HEDDLE_ASSERT(pid > 0, "--pid takes no other numbers");
    struct stat status {};
    if (::stat(process.c_str(), &status) != 0) return {pid, "there is no such process", false};
    const std::string command = command_of(process);
    std::error_code error;
    const fs::directory_iterator descriptors(process / "fd", error);
    if (!error) return {pid, command + " does not run over heddle", true};
    const ::passwd* const owner = ::getpwuid(status.st_uid);
    return {pid,
            command + " is a process of user " +
                (owner != nullptr ? owner->pw_name : std::to_string(status.st_uid)) +
                ", and this user may not read its files (" + error.message() +
                "): run heddle top as that user or as root",
            false};
}

// The software HCA's fabric that the process was started with.
std::string fabric_of(const fs::path& process) {
    const std::string environment = file_contents(process / "environ");
    const std::string wanted = "SOFTHCA_FABRIC=";
    for (std::size_t at = 0; at < environment.size();) {
        const std::size_t end = std::min(environment.find('\0', at), environment.size());
        if (environment.compare(at, wanted.size(), wanted) == 0)
            return environment.substr(at + wanted.size(), end - at - wanted.size());
        at = end + 1;
    }
    return "default";
}

class RnrCounters {
public:
    void look(RunningProcess& process) {
        const fs::path folder = fs::path("/proc") / std::to_string(process.pid);
        const std::string text = file_contents("/sys/class/infiniband/" + process.live.device +
                                               "/ports/1/hw_counters/out_of_buffer");
        if (!text.empty()) {
            process.rnr = std::strtoull(text.c_str(), nullptr, 10);
            process.rnr_of_port = true;
            return;
        }
        const std::string fabric = fabric_of(folder);
        if (!fabrics_.contains(fabric)) fabrics_[fabric] = counts_of(fabric);
        const auto& counts = fabrics_[fabric];
        const auto found = counts.find(process.live.pid);
        if (found != counts.end()) process.rnr = found->second;
    }

private:
    using Counts = std::map<int, std::uint64_t>;  // by process
    static Counts counts_of(const std::string& fabric) {
        Counts counts;
        try {
            for (const auto& each : softhca::view::take_snapshot(fabric).processes)
                counts[each.pid] = each.counters.rnr_naks;
        } catch (const std::exception&) {  // there is none
        }
        return counts;
    }
    std::map<std::string, Counts> fabrics_;
};

}  // namespace

Running running_processes(const std::vector<int>& only) {
    Running running;
    RnrCounters rnr;
    const auto add = [&](int pid) {
        const fs::path folder = fs::path("/proc") / std::to_string(pid);
        Found found = look_at(folder);
        if (!found.any) {
            if (!only.empty()) running.absent.push_back(absent_process(pid, folder));
            return;
        }
        if (!found.live) {
            ++running.other_versions;
            return;
        }
        RunningProcess process;
        process.pid = pid;
        process.command = command_of(folder);
        process.live = std::move(*found.live);
        rnr.look(process);
        HEDDLE_ASSERT(process.rnr || !process.rnr_of_port, "a port's counter has a value");
        running.processes.push_back(std::move(process));
    };
    if (!only.empty()) {
        std::for_each(only.begin(), only.end(), add);
    } else {
        std::error_code error;
        for (const auto& entry : fs::directory_iterator("/proc", error))
            if (const auto pid = number_of(entry.path().filename().string())) add(*pid);
    }
    std::sort(running.processes.begin(), running.processes.end(),
              [](const auto& a, const auto& b) { return a.pid < b.pid; });
    return running;
}

}  // namespace heddle::cli
