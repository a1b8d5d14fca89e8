// SPDX-License-Identifier: BSD-2-Clause
// The checks of `heddle doctor` that concern the provider, and libfabric with it.
#include <dlfcn.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/common/program.h"
#include "cli/common/text.h"
#include "cli/heddle/doctor.h"
#include "cli/heddle/launcher.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

constexpr const char* kProviderFile = "libheddle-fi.so";
constexpr double kLoopSeconds = 10;

// What FI_PROVIDER says of heddle (fi_provider(7)): a list of names, or behind ^ of those that are
// left out.
bool allows_heddle(std::string_view list) {
    if (list.empty()) return true;
    const bool left_out = list.starts_with('^');
    if (left_out) list.remove_prefix(1);
    bool named = false;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(','), list.size());
        named = named || list.substr(0, end) == "heddle";
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return named != left_out;
}

bool any_folder_has_provider(std::string_view folders) {
    while (!folders.empty()) {
        const std::size_t end = std::min(folders.find(':'), folders.size());
        const std::string file = std::string(folders.substr(0, end)) + "/" + kProviderFile;
        if (::access(file.c_str(), R_OK) == 0) return true;
        folders.remove_prefix(std::min(end + 1, folders.size()));
    }
    return false;
}

}  // namespace

// MPIs move messages within a host through files in /dev/shm; containers have 64 MiB by default.
void Checkup::check_shared_memory() {
    struct statvfs space {};
    if (::statvfs("/dev/shm", &space) != 0) {
        problem("shared-memory", std::string("/dev/shm: ") + std::strerror(errno),
                "as root: mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    constexpr std::uint64_t kEnough = 128 << 20;
    const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
    const std::string seen =
        "/dev/shm has " + cli_common::short_bytes(free) + " free of " +
        cli_common::short_bytes(std::uint64_t{space.f_blocks} * space.f_frsize);
    if (free < kEnough)
        note("shared-memory", seen,
             "an MPI needs some MiB for each rank of this host: remove old files there; for a "
             "container: docker run --shm-size=1g");
    else
        ok("shared-memory", seen);
}

void Checkup::check_provider() {
    const char* const path = std::getenv("FI_PROVIDER_PATH");
    const char* const names = std::getenv("FI_PROVIDER");
    std::string folder;
    try {
        folder = provider_folder();
    } catch (const cli_common::ProgramError& error) {
        problem("provider", error.what(),
                "install heddle with its provider: the command and the folder of the library move "
                "together (bin/ and lib/)");
        return;
    }
    const std::string file = folder + "/" + kProviderFile;
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr || ::dlsym(handle, "fi_prov_ini") == nullptr) {
        problem("provider", std::string("libheddle-fi.so cannot be loaded: ") + ::dlerror(),
                "install the library that is named (Debian and Ubuntu: ibverbs-providers, "
                "libhwloc15), or build heddle on this system");
        return;
    }
    facts_["provider"] = file;
    provider_ = folder;
    // heddle run sets both; a program that is started without it goes by them.
    if (path != nullptr && path[0] != '\0' && !any_folder_has_provider(path))
        problem("provider",
                std::string("FI_PROVIDER_PATH is ") + path + ", without libheddle-fi.so",
                "export FI_PROVIDER_PATH=" + folder + ", or unset it and start jobs by heddle run");
    else if (names != nullptr && !allows_heddle(names))
        problem("provider", std::string("FI_PROVIDER is ") + names + ", which leaves heddle out",
                "export FI_PROVIDER=heddle, or unset it and start jobs by heddle run");
    else
        ok("provider", file);
}

void Checkup::check_libfabric() {
    if (provider_.empty()) return;
    // As heddle run sets them. A peer that does not answer must not hold up the end, and what is
    // sent here does not count as the job's.
    ::setenv("FI_PROVIDER_PATH", provider_.c_str(), 1);
    ::setenv("FI_PROVIDER", "heddle", 1);
    ::setenv("FI_HEDDLE_CLOSE_TIMEOUT", "1", 1);
    ::setenv("FI_HEDDLE_STATS", "off", 1);
    if (!options_.protocol.device.empty())
        ::setenv("FI_HEDDLE_DEVICE", options_.protocol.device.c_str(), 1);
    try {
        auto probe = std::make_unique<FabricProbe>(request_.libfabric);
        facts_["libfabric"] = probe->version();
        const std::string why = probe->why_not_listed();
        if (why.empty()) {
            ok("libfabric",
               request_.libfabric + " " + probe->version() + " lists heddle on " + probe->domain());
            probe_ = std::move(probe);
        } else if (is_usable_) {
            problem("libfabric",
                    request_.libfabric + " " + probe->version() + " does not list heddle: " + why,
                    "FI_LOG_LEVEL=warn heddle doctor shows libfabric's reason; heddle needs "
                    "libfabric 1.17 or later, built with loadable providers (--enable-dl)");
        } else {
            note("libfabric", request_.libfabric + " " + probe->version() + " lists no device", "");
        }
    } catch (const ProbeError& error) {
        if (request_.libfabric == DoctorRequest().libfabric)
            note("libfabric", error.what(),
                 "an MPI may bring its own: --libfabric FILE checks that. Debian and Ubuntu: apt "
                 "install libfabric1");
        else
            problem("libfabric", error.what(), "name the file of a libfabric in --libfabric");
    }
}

// A message to itself leaves the device and comes back, unless the protocol shares memory.
void Checkup::check_loop() {
    HEDDLE_ASSERT(probe_ != nullptr);
    try {
        probe_->open();
        const FabricProbe::Times times = probe_->loop(kLoopSeconds);
        char text[128];
        std::snprintf(text, sizeof text,
                      "8 bytes in %.1f us, 1 MiB in %.0f us, through %s to itself", times.small_us,
                      times.large_us, probe_->domain().c_str());
        ok("loop", text);
        facts_["address"] = probe_->address();
    } catch (const ProbeError& error) {
        problem("loop", std::string("messages through the device to itself: ") + error.what(),
                "the findings above, FI_LOG_LEVEL=warn, and heddle check-hardware show more");
        probe_.reset();
    }
}

}  // namespace heddle::cli
