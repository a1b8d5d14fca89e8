// SPDX-License-Identifier: BSD-2-Clause
// Command descriptors of this process: opening, finding and closing them, and the effects of fork
// and exit.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/epoch.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/memory/fork.h"
#include "softhca/device/own_memory.h"
#include "softhca/device/peers.h"
#include "softhca/device/port.h"
#include "softhca/device/table.h"
#include "softhca/engine/driver_locks.h"
#include "softhca/engine/events.h"
#include "softhca/engine/progress.h"
#include "softhca/engine/recording.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/device_memory.h"
#include "softhca/uverbs/extents.h"
#include "softhca/uverbs/uar.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::uverbs {

using device::Fabric;
using device::kNone;

namespace {

// Whether a descriptor is a command descriptor, for a check by one load. Higher numbers are looked
// up in the map.
constexpr int kFlagged = 1 << 16;
std::atomic<bool> g_command[kFlagged];

std::mutex& contexts_mutex() {
    static std::mutex* mutex = new std::mutex;  // outlives every destructor
    return *mutex;
}
using Contexts = std::map<int, std::shared_ptr<DeviceContext>>;
Contexts& contexts() {  // under contexts_mutex()
    static Contexts* map = new Contexts;
    return *map;
}
// In a forked child: a command file of the parent.
struct Inherited {
    ino_t inode;
    dev_t file_system;
    unsigned device;
};
std::vector<Inherited>& inherited() {  // under contexts_mutex()
    static auto* list = new std::vector<Inherited>;
    return *list;
}
std::atomic<int> g_open{0};            // contexts().size()
std::atomic<bool> g_inherited{false};  // inherited() is not empty
std::atomic<pid_t> g_pid{0};           // the process that the state belongs to

void flag(int fd, bool on) noexcept {
    if (fd >= 0 && fd < kFlagged) g_command[fd].store(on, std::memory_order_release);
    SOFTHCA_DEBUG_ASSERT(!on || contexts().contains(fd));
}
// After each change of contexts(). A program may close a command descriptor without our seeing it
// and get its number again, so changes are not counted one by one.
void count_contexts() noexcept {
    g_open.store(static_cast<int>(contexts().size()), std::memory_order_release);
}

void before_fork() {
    contexts_mutex().lock();
    device::memory::atfork_prepare();
}
void after_fork_parent() {
    device::memory::atfork_parent();
    contexts_mutex().unlock();
}
// The child has private copies of the parent's memory and no share in its device. Descriptors that
// it inherited answer EIO, with the exceptions of give_record(). The child may open the device
// again.
void after_fork_child() {
    device::memory::atfork_child();
    for (auto& [fd, context] : contexts()) {
        flag(fd, false);
        if (context->record != kNone || context->inherited) {
            inherited().push_back({context->inode, context->file_system, context->device});
            g_inherited.store(true);
        }
        // The context is kept, because another thread of the parent may have been changing it.
        leave_behind(new std::shared_ptr<DeviceContext>(context));
    }
    contexts().clear();
    g_open.store(0);
    record::forget_after_fork();
    engine::forget_driver_locks_after_fork();
    engine::forget_progress_after_fork();
    engine::forget_events_after_fork();
    forget_extents_after_fork();
    forget_device_memory_after_fork();
    device::own_memory::forget_after_fork();
    device::peers::forget_after_fork();
    device::epoch::forget_after_fork();
    Fabric::forget_after_fork();
    g_pid.store(getpid());
    contexts_mutex().unlock();
}

void once() noexcept {
    static std::once_flag flag;
    std::call_once(flag, [] {
        pthread_atfork(before_fork, after_fork_parent, after_fork_child);
        g_pid.store(getpid());
    });
}

bool is_file_of(const struct stat& st, const DeviceContext& context) noexcept {
    return st.st_ino == context.inode && st.st_dev == context.file_system;
}

// Other descriptors of this process that refer to the same command file. They were duplicated
// without our seeing it.
std::vector<int> duplicates(int fd, const DeviceContext& context) noexcept {
    std::vector<int> found;
    DIR* entries = fdopendir(libc::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!entries) return found;
    while (const dirent* entry = readdir(entries)) {
        const int other = atoi(entry->d_name);
        struct stat st {};
        if (entry->d_name[0] != '.' && other != fd && libc::fstat(other, &st) == 0 &&
            is_file_of(st, context))
            found.push_back(other);
    }
    closedir(entries);
    return found;
}

}  // namespace

int open_device(unsigned device) noexcept {
    once();
    Fabric* fabric = Fabric::attach();
    if (!fabric) {
        errno = ENODEV;
        return -1;
    }
    if (device >= device::device_count(fabric->segment())) {
        errno = ENOENT;
        return -1;
    }
    const int fd =
        libc::memfd_create(device::DeviceText("softhca-uverbs", device).c_str(), MFD_CLOEXEC);
    if (fd < 0) return -1;
    struct stat st {};
    if (libc::ftruncate(fd, static_cast<off_t>(command_fd_bytes())) != 0 ||
        libc::fstat(fd, &st) != 0) {
        const int error = errno;
        libc::close(fd);
        errno = error;
        return -1;
    }
    auto context = std::make_shared<DeviceContext>();
    context->fabric = fabric;
    context->device = device;
    context->inode = st.st_ino;
    context->file_system = st.st_dev;
    std::lock_guard<std::mutex> guard(contexts_mutex());
    contexts()[fd] = std::move(context);
    count_contexts();
    flag(fd, true);
    return fd;
}

bool owns(int fd) noexcept {
    if (fd < 0 || !g_open.load(std::memory_order_acquire)) return false;
    if (fd < kFlagged) return g_command[fd].load(std::memory_order_acquire);
    std::lock_guard<std::mutex> guard(contexts_mutex());
    return contexts().count(fd) != 0;
}

std::shared_ptr<DeviceContext> find_context(int fd) noexcept {
    std::lock_guard<std::mutex> guard(contexts_mutex());
    struct stat st {};
    if (libc::fstat(fd, &st) != 0) return {};
    if (const auto at = contexts().find(fd); at != contexts().end()) {
        if (is_file_of(st, *at->second)) return at->second;
        return {};
    }
    for (const auto& [known, context] : contexts()) {  // `fd` may be a duplicate
        if (!is_file_of(st, *context)) continue;
        auto found = context;
        contexts()[fd] = found;
        ++found->descriptors;
        count_contexts();
        SOFTHCA_ASSERT(found->descriptors > 1);
        flag(fd, true);
        return found;
    }
    for (const Inherited& file : inherited()) {
        if (st.st_ino != file.inode || st.st_dev != file.file_system) continue;
        auto found = std::make_shared<DeviceContext>();
        found->inode = file.inode;
        found->file_system = file.file_system;
        found->device = file.device;
        found->inherited = true;
        contexts()[fd] = found;
        count_contexts();
        flag(fd, true);
        return found;
    }
    return {};
}

bool adopt(int fd) noexcept {
    return (g_open.load(std::memory_order_acquire) != 0 || g_inherited.load()) &&
           find_context(fd) != nullptr;
}

unsigned device_of(int fd) noexcept {
    const std::shared_ptr<DeviceContext> context = find_context(fd);
    return context ? context->device : 0;
}

int descriptor_of(const DeviceContext& context) noexcept {
    std::lock_guard<std::mutex> guard(contexts_mutex());
    for (const auto& [fd, open] : contexts()) {
        struct stat st {};
        if (open.get() == &context && libc::fstat(fd, &st) == 0 && is_file_of(st, context))
            return fd;
    }
    return -1;
}

void closing(int fd) noexcept {
    if (Fabric* fabric = Fabric::current()) {
        const std::uint32_t channel = owns(fd) ? kNone : engine::find_channel(fd);
        if (channel != kNone) {
            engine::close_channel(*fabric, channel);
            return;
        }
    }
    std::shared_ptr<DeviceContext> last;
    {
        std::lock_guard<std::mutex> guard(contexts_mutex());
        const auto at = contexts().find(fd);
        if (at == contexts().end()) {
            flag(fd, false);
            return;
        }
        auto context = at->second;
        contexts().erase(at);
        count_contexts();
        SOFTHCA_ASSERT(context->descriptors > 0);
        flag(fd, false);
        if (--context->descriptors == 0) {
            for (const int other : duplicates(fd, *context)) {
                contexts()[other] = context;
                ++context->descriptors;
                count_contexts();
                flag(other, true);
            }
            if (context->descriptors == 0) last = std::move(context);
        }
    }
    SOFTHCA_ASSERT(!last || last->descriptors == 0);
    if (last) destroy_context(*last);
}

bool owns_channel(int fd) noexcept { return engine::is_event_fd(fd); }

bool is_internal(int fd) noexcept {
    if (fd < 0) return false;
    Fabric* fabric = Fabric::current();
    if (!fabric) return false;
    return fabric->is_internal_fd(fd) || device::memory::owns_fd(fd) ||
           engine::is_internal_event_fd(fd);
}

// The process ends: objects that are still open are freed, as the kernel does when it closes
// descriptors.
void leave_fabric() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric || (g_pid.load() && g_pid.load() != getpid())) return;
    engine::stop_progress();
    if (record::on()) engine::finish_record(record::Ending::kOrderly);
    fabric->leave();
}

void leave_fabric_abruptly() noexcept {
    Fabric* fabric = Fabric::current();
    if (!fabric || (g_pid.load() && g_pid.load() != getpid())) return;
    if (record::on()) engine::finish_record(record::Ending::kAbruptly);
    fabric->leave_abruptly();
}

void register_fork_handlers() noexcept { once(); }

}  // namespace softhca::uverbs

namespace {
// A process may join the fabric by reading sysfs alone, and then fork. So the fork handlers are
// registered at the start.
__attribute__((constructor)) void at_start() { softhca::uverbs::register_fork_handlers(); }
__attribute__((destructor)) void at_exit() { softhca::uverbs::leave_fabric(); }
}  // namespace
