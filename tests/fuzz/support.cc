// SPDX-License-Identifier: BSD-2-Clause
// What the fuzz targets share: see support.h.
#include "support.h"

#include <dirent.h>
#include <rdma/rdma_user_ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "softhca/device/fabric.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/tree.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::fuzz {

namespace {

// Removes the files of processes that are gone. Their names are PREFIX, the number of the process,
// and a suffix.
void remove_leftovers(const std::string& prefix) {
    const std::string path = device::fabric_directories().front();
    DIR* directory = opendir(path.c_str());
    if (!directory) return;
    std::vector<std::string> names;
    while (const dirent* entry = readdir(directory)) {
        const std::string name = entry->d_name;
        if (!name.starts_with(prefix)) continue;
        const int pid = std::atoi(name.c_str() + prefix.size());
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            names.push_back(prefix + std::to_string(pid));
    }
    closedir(directory);
    for (const std::string& name : names) {
        unlink(device::fabric_segment_path(path, name).c_str());
        device::remove_tree(device::fabric_tree_path(path, name));
    }
}

}  // namespace

void use_own_fabric(const char* target, char** arguments) {
    const std::string prefix = std::string("fuzz-") + target + "-";
    const std::string name = prefix + std::to_string(getpid());
    const char* named = getenv("SOFTHCA_FABRIC");
    if (!named || name != named) {
        setenv("SOFTHCA_FABRIC", name.c_str(), 1);
        // Numbers of devices and ports are then more than right or wrong.
        setenv("SOFTHCA_DEVICES", "2", 0);
        setenv("SOFTHCA_PORTS", "2", 0);
        // error messages are what is expected here; SOFTHCA_LOG=debug shows how an input goes
        setenv("SOFTHCA_LOG", "error", 0);
        // The options have been read already, by a constructor of softhca's.
        execv("/proc/self/exe", arguments);
        fail("cannot start itself with a fabric of its own");
    }
    remove_leftovers(prefix);
    // closing a device looks at every descriptor there may be
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1024);
    setrlimit(RLIMIT_NOFILE, &limit);
}

void count_threads_as_own() {
    DIR* tasks = opendir("/proc/self/task");
    if (!tasks) fail("cannot list /proc/self/task");
    int threads = 0;
    while (const dirent* entry = readdir(tasks))
        if (entry->d_name[0] != '.') ++threads;
    closedir(tasks);
    device::memory::set_own_threads(threads - 1);
}

ib_uverbs_attr& Call::add(std::uint16_t id, std::uint64_t data, std::uint16_t length) {
    if (count_ == kMost) fail("too many attributes in one call");
    ib_uverbs_attr& attribute = attributes_[count_++];
    attribute = {};
    attribute.attr_id = id;
    attribute.len = length;
    attribute.data = data;
    return attribute;
}

void Call::in(std::uint16_t id, const void* from, std::size_t length) {
    ib_uverbs_attr& attribute =
        add(id, reinterpret_cast<std::uintptr_t>(from), static_cast<std::uint16_t>(length));
    if (length > sizeof attribute.data) return;
    attribute.data = 0;
    std::memcpy(&attribute.data, from, length);
}

void Call::out(std::uint16_t id, void* to, std::size_t length) {
    add(id, reinterpret_cast<std::uintptr_t>(to), static_cast<std::uint16_t>(length));
}

Call::Header Call::header() const {
    return {static_cast<std::uint16_t>(sizeof(Header) + count_ * sizeof(ib_uverbs_attr)),
            object_,
            method_,
            count_,
            0,
            0,
            0};
}

int Call::run(int fd) { return send(fd, header()); }

int Call::send(int fd, const Header& header) {
    struct {
        Header header;
        std::array<ib_uverbs_attr, kMost> attributes;
    } argument{header, attributes_};
    const int result = uverbs::ioctl(fd, RDMA_VERBS_IOCTL, &argument);
    const int error = errno;
    attributes_ = argument.attributes;
    if (result == 0) return 0;
    if (result != -1 || error <= 0) fail("ioctl returned %d with errno %d", result, error);
    return error;
}

std::uint64_t Call::data_of(std::uint16_t id) const {
    for (const ib_uverbs_attr& attribute : attributes_)
        if (attribute.attr_id == id) return attribute.data;
    return 0;
}

device::Segment& segment() {
    static auto* segment = [] {
        void* at = mmap(nullptr, sizeof(device::Segment), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) fail("cannot map a segment");
        return static_cast<device::Segment*>(at);
    }();
    return *segment;
}

std::byte* guarded_pages(std::size_t length, int protection, int flags, int fd) {
    // larger than the guard of a thread's stack: stacks are not shared
    constexpr std::size_t kGuard = std::size_t{1} << 20;
    void* all = mmap(nullptr, length + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) fail("cannot map %zu bytes", length);
    void* inside = static_cast<std::byte*>(all) + kGuard;
    if (mmap(inside, length, protection, flags | MAP_FIXED, fd, 0) != inside)
        fail("cannot map %zu bytes: errno %d", length, errno);
    return static_cast<std::byte*>(inside);
}

}  // namespace softhca::fuzz
