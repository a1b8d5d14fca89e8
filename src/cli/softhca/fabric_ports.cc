// SPDX-License-Identifier: BSD-2-Clause
#include "cli/softhca/fabric_ports.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cli/softhca/commands.h"
#include "cli/softhca/directory_lock.h"
#include "softhca/base/assert.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/tree_port.h"
#include "softhca/view/fabric_file.h"
#include "softhca/view/snapshot.h"

namespace softhca::cli {
namespace {

[[noreturn]] void fail_with(const std::string& what, int error) {
    throw CommandError(what + ": " + std::strerror(error));
}

// A fabric without a process is made anew by the next one.
std::unique_ptr<view::FabricFile> open_used(const std::string& name) {
    std::unique_ptr<view::FabricFile> file = view::FabricFile::open(name);
    if (!file || !file->segment()) view::take_snapshot(name);  // throws and says why
    if (!file || !file->segment() || file->live_processes() == 0)
        throw CommandError("no program uses fabric " + name + " now, so it has no ports");
    return file;
}

// The segment, mapped for writing. The caller has looked at it by open_used().
class WritableSegment {
public:
    explicit WritableSegment(const std::string& path) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) fail_with("cannot open " + path, errno);
        map_ = ::mmap(nullptr, sizeof(device::Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        const int error = errno;
        ::close(fd);
        if (map_ == MAP_FAILED) fail_with("cannot map " + path, error);
    }
    ~WritableSegment() { ::munmap(map_, sizeof(device::Segment)); }
    WritableSegment(const WritableSegment&) = delete;
    WritableSegment& operator=(const WritableSegment&) = delete;
    device::Segment& operator*() const { return *static_cast<device::Segment*>(map_); }

private:
    void* map_;
};

}  // namespace

std::vector<device::Port> fabric_ports(const std::string& fabric) {
    return device::ports_of(*open_used(fabric)->segment());
}

device::PortChange change_port(const std::string& fabric, unsigned index, const Change& change) {
    const std::string directory = device::find_fabric(fabric);
    if (directory.empty()) open_used(fabric);  // throws
    const DirectoryLock lock(directory);
    const std::unique_ptr<view::FabricFile> file = open_used(fabric);
    SOFTHCA_ASSERT(index < device::port_count(*file->segment()), "the caller has seen the port");
    const WritableSegment segment(device::fabric_segment_path(directory, fabric));
    const device::PortChange result = change(*segment, index);
    if (result != device::PortChange::kDone && result != device::PortChange::kNothingToDo)
        return result;
    // Also where nothing was to do: an earlier command may have ended half-way.
    const std::string tree = device::fabric_tree_path(directory, fabric);
    if (const int error = device::change_port(tree, device::port_at(*segment, index)))
        fail_with("cannot change " + tree, error);
    device::announce_port_changes(*segment);
    return result;
}

}  // namespace softhca::cli
