// SPDX-License-Identifier: BSD-2-Clause
// Locates the tree's directory once, from the fabric: see root.h.
#include "softhca/preload/root.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/options.h"
#include "softhca/device/fabric.h"
#include "softhca/device/port.h"
#include "softhca/preload/process.h"

namespace softhca::preload {

namespace {

std::atomic<const TreeRoot*> known{nullptr};

// Set when the library's destructors run, after the fabric has been left. A library that is
// unloaded later may read sysfs once more. It must not join again, because nobody would leave.
std::atomic<bool> ending{false};

__attribute__((destructor)) void end() { ending.store(true, std::memory_order_relaxed); }

// The process was started in the tree, for example by a shell whose working directory is there.
std::atomic<bool> started_inside{false};

// The names of the fabric's directory and tree have this form (device/fabric.h).
bool looks_like_tree(std::string_view path) noexcept {
    return path.find("/softhca-") != std::string_view::npos &&
           path.find(".tree") != std::string_view::npos;
}

__attribute__((constructor)) void look_around() {
    const int saved_errno = errno;
    PathBuffer here;
    const ssize_t length = libc::getcwd(here.data(), PATH_MAX);
    if (length > 0) {
        here.set_length(static_cast<std::size_t>(length));
        started_inside.store(looks_like_tree(here.view()), std::memory_order_relaxed);
    }
    errno = saved_errno;
}

// Joining opens files itself. If one of them looks like a path of ours, it must not join again.
// Initial-exec TLS allocates nothing at the first use in a thread.
thread_local bool joining __attribute__((tls_model("initial-exec"))) = false;

// Builds the root aside and publishes it by one exchange, so there is no lock that a signal handler
// or a forked child could find held. If another thread was first, this thread discards its own.
const TreeRoot* learn(const char* tree_path) noexcept {
    SOFTHCA_ASSERT(tree_path != nullptr && tree_path[0] == '/');
    if (const TreeRoot* root = known.load(std::memory_order_acquire)) {
        return root;
    }
    void* memory = libc::mmap(nullptr, sizeof(TreeRoot), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    auto* fresh = new (memory) TreeRoot;
    bool good = fresh->given.assign(tree_path) && fresh->canonical.assign(tree_path);
    const int fd = libc::open(tree_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        PathBuffer canonical;
        if (good && descriptor_path(fd, &canonical)) {
            good = fresh->canonical.assign(canonical.view());
        }
        libc::close(fd);
    }
    const TreeRoot* expected = nullptr;
    if (good && known.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) {
        return fresh;
    }
    libc::munmap(memory, sizeof(TreeRoot));
    return good ? expected : nullptr;
}

bool lies_in(std::string_view directory, std::string_view path) noexcept {
    return !directory.empty() && path.starts_with(directory) &&
           (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

const TreeRoot* joined_root() noexcept {
    const device::Fabric* fabric = device::Fabric::current();
    return fabric == nullptr ? nullptr : learn(fabric->tree_path());
}

const TreeRoot* join_root() noexcept {
    if (const TreeRoot* root = joined_root()) {
        return root;
    }
    if (joining || ending.load(std::memory_order_relaxed) || in_borrowed_memory()) {
        return nullptr;
    }
    const int saved_errno = errno;
    joining = true;
    const device::Fabric* fabric = device::Fabric::attach();
    joining = false;
    errno = saved_errno;
    return fabric == nullptr ? nullptr : learn(fabric->tree_path());
}

unsigned known_devices() noexcept {
    device::Fabric* const fabric = device::Fabric::current();
    return fabric != nullptr ? device::device_count(fabric->segment())
                             : static_cast<unsigned>(options().devices);
}

bool tree_may_be_near() noexcept {
    return started_inside.load(std::memory_order_relaxed) || device::Fabric::current() != nullptr;
}

const TreeRoot* root_for(std::string_view path) noexcept {
    if (const TreeRoot* root = joined_root()) {
        return root;
    }
    return looks_like_tree(path) ? join_root() : nullptr;
}

std::size_t root_prefix(const TreeRoot& root, std::string_view path) noexcept {
    for (const PathBuffer* name : {&root.canonical, &root.given}) {
        if (lies_in(name->view(), path)) {
            return name->length();
        }
    }
    return 0;
}

std::size_t strip_root(const TreeRoot& root, char* path, std::size_t length) noexcept {
    const std::size_t prefix = root_prefix(root, {path, length});
    if (prefix == 0) {
        return length;
    }
    SOFTHCA_ASSERT(prefix <= length);
    if (prefix == length) {
        path[0] = '/';
        path[1] = '\0';
        return 1;
    }
    std::memmove(path, path + prefix, length - prefix);
    path[length - prefix] = '\0';
    return length - prefix;
}

bool descriptor_path(int fd, PathBuffer* out) noexcept {
    char link[32];
    SOFTHCA_ASSERT(out != nullptr);
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = libc::readlink(link, out->data(), PATH_MAX - 1);
    if (length < 0) {
        out->clear();
        return false;
    }
    SOFTHCA_ASSERT(length < PATH_MAX);
    out->set_length(static_cast<std::size_t>(length));
    return true;
}

}  // namespace softhca::preload
