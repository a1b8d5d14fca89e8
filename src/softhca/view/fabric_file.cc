// SPDX-License-Identifier: BSD-2-Clause
// Fabrics as files: see fabric_file.h, and softhca/device/fabric.h for what they mean.
#include "softhca/view/fabric_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "softhca/base/assert.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/liveness.h"

namespace softhca::view {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw FabricError(what + ": " + std::strerror(errno));
}

}  // namespace

std::vector<std::string> fabric_names() {
    std::set<std::string> names;
    std::string distrusted;
    bool usable = false;
    for (const std::string& directory : device::fabric_directories()) {
        std::string reason;
        const int error = device::inspect_fabric_directory(directory, &reason);
        usable = usable || error == 0 || error == ENOENT;
        if (error != 0) {
            if (error != ENOENT) distrusted += (distrusted.empty() ? "" : "; ") + reason;
            continue;
        }
        for (std::string& name : device::fabrics_in(directory))
            names.insert(std::move(name));
    }
    if (!usable)
        throw FabricError("no fabric can be there: " + distrusted +
                          ". Remove it, or set SOFTHCA_DIRECTORY to a directory of your own");
    return {names.begin(), names.end()};
}

std::unique_ptr<FabricFile> FabricFile::open(const std::string& name) {
    const std::string directory = device::find_fabric(name);
    if (directory.empty()) return nullptr;
    const std::string path = device::fabric_segment_path(directory, name);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT) return nullptr;
        fail("cannot open " + path);
    }
    std::unique_ptr<FabricFile> file(new FabricFile(name, fd, nullptr));
    struct stat status;
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
        throw FabricError(path + " is not a regular file of this user: softhca did not make it");
    if (status.st_size != static_cast<off_t>(sizeof(device::Segment))) return file;
    void* map = ::mmap(nullptr, sizeof(device::Segment), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail("cannot map " + path);
    const auto* segment = static_cast<const device::Segment*>(map);
    if (segment->magic.load(std::memory_order_acquire) == device::kSegmentMagic &&
        segment->version == device::kSegmentVersion &&
        segment->bytes_low == static_cast<std::uint32_t>(sizeof(device::Segment)))
        file->segment_ = segment;
    else
        ::munmap(map, sizeof(device::Segment));
    return file;
}

FabricFile::~FabricFile() {
    SOFTHCA_ASSERT(fd_ >= 0, "open() makes no object without a file");
    if (segment_) ::munmap(const_cast<device::Segment*>(segment_), sizeof(device::Segment));
    ::close(fd_);
}

bool FabricFile::alive(std::uint32_t slot) const {
    SOFTHCA_ASSERT(slot < device::kMaxProcesses, "a lock behind the last slot is nobody's");
    struct flock lock = device::liveness_lock(slot, 1);
    return ::fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

unsigned FabricFile::live_processes() const {
    struct flock any = device::liveness_lock(0, device::kMaxProcesses);
    if (::fcntl(fd_, F_OFD_GETLK, &any) != 0) fail("cannot test the locks of fabric " + name_);
    if (any.l_type == F_UNLCK) return 0;
    unsigned live = 0;
    for (std::uint32_t slot = 0; slot < device::kMaxProcesses; ++slot)
        if (alive(slot)) ++live;
    return live;
}

}  // namespace softhca::view
