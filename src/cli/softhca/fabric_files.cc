// SPDX-License-Identifier: BSD-2-Clause
// Fabrics as files: see fabric_files.h, and softhca/device/fabric.h for what they mean.
#include "cli/softhca/fabric_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "cli/softhca/commands.h"
#include "softhca/device/fabric.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/tree.h"

namespace softhca::cli {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw CommandError(what + ": " + std::strerror(errno));
}

// Joining, leaving and removing fabrics exclude each other by a lock on the directory.
class DirectoryLock {
public:
    explicit DirectoryLock(const std::string& directory, int how = LOCK_EX)
        : fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) {
        if (fd_ < 0) fail("cannot open " + directory);
        while (::flock(fd_, how) != 0)
            if (errno != EINTR) {
                ::close(fd_);
                fail("cannot lock " + directory);
            }
    }
    ~DirectoryLock() { ::close(fd_); }
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;

private:
    int fd_;
};

// Under the directory's lock.
void remove_files(const std::string& directory, const std::string& name) {
    const std::string path = device::fabric_segment_path(directory, name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("cannot remove " + path);
    const std::string tree = device::fabric_tree_path(directory, name);
    device::remove_tree(tree);
    if (::access(tree.c_str(), F_OK) == 0) fail("cannot remove " + tree);
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
        throw CommandError("no fabric can be there: " + distrusted +
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
        throw CommandError(path + " is not a regular file of this user: softhca did not make it");
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
    if (segment_) ::munmap(const_cast<device::Segment*>(segment_), sizeof(device::Segment));
    ::close(fd_);
}

bool FabricFile::alive(std::uint32_t slot) const {
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

void reclaim_dead(const std::string& name) {
    // In a child, since a process joins one fabric, once, and the command may clean several.
    const pid_t child = ::fork();
    if (child < 0) fail("cannot fork");
    if (child == 0) {
        device::Fabric* fabric = device::Fabric::attach(name.c_str());
        if (fabric) fabric->leave();
        ::_exit(fabric ? 0 : 1);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("cannot wait for the cleaning process");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw CommandError("cannot join fabric " + name + " to clean it");
}

bool remove_fabric(const std::string& name, bool force) {
    const std::string directory = device::find_fabric(name);
    if (directory.empty()) return true;  // its last process just left
    const DirectoryLock lock(directory);
    const std::unique_ptr<FabricFile> file = FabricFile::open(name);
    if (file && !force && file->live_processes() > 0) return false;
    remove_files(directory, name);
    ::rmdir(directory.c_str());  // succeeds when it was the last
    return true;
}

void remove_dead_fabrics() {
    for (const std::string& directory : device::fabric_directories()) {
        std::string reason;
        if (device::inspect_fabric_directory(directory, &reason) != 0) continue;
        try {
            // The holder of the lock joins or leaves. The next `softhca run` looks again.
            const DirectoryLock lock(directory, LOCK_EX | LOCK_NB);
            for (const std::string& name : device::fabrics_in(directory)) {
                const device::SegmentUse use =
                    device::segment_use(device::fabric_segment_path(directory, name));
                if (use == device::SegmentUse::kUnused || use == device::SegmentUse::kNoFile)
                    remove_files(directory, name);
            }
            ::rmdir(directory.c_str());  // succeeds when none is left
        } catch (const CommandError&) {
            // It is no business of the program that is to run.
        }
    }
}

}  // namespace softhca::cli
