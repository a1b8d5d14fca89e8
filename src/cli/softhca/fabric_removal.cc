// SPDX-License-Identifier: BSD-2-Clause
#include "cli/softhca/fabric_removal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cli/softhca/commands.h"
#include "cli/softhca/directory_lock.h"
#include "softhca/base/assert.h"
#include "softhca/device/fabric.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/tree.h"
#include "softhca/view/fabric_file.h"

namespace softhca::cli {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw CommandError(what + ": " + std::strerror(errno));
}

// Under the directory's lock.
void remove_files(const std::string& directory, const std::string& name) {
    SOFTHCA_ASSERT(!directory.empty() && !name.empty() && name.find('/') == std::string::npos,
                   "a tree that is removed is one of the directory's");
    const std::string path = device::fabric_segment_path(directory, name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("cannot remove " + path);
    const std::string tree = device::fabric_tree_path(directory, name);
    device::remove_tree(tree);
    if (::access(tree.c_str(), F_OK) == 0) fail("cannot remove " + tree);
}

}  // namespace

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
    const std::unique_ptr<view::FabricFile> file = view::FabricFile::open(name);
    SOFTHCA_ASSERT(file == nullptr || file->name() == name);
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
