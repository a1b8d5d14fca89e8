// SPDX-License-Identifier: BSD-2-Clause
// Joining and leaving a fabric: see fabric.h.
#include "softhca/device/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/clock.h"
#include "softhca/device/epoch.h"
#include "softhca/device/fabric_directory.h"
#include "softhca/device/guid.h"
#include "softhca/device/liveness.h"
#include "softhca/device/memory/arena.h"
#include "softhca/device/memory/remote.h"
#include "softhca/device/peers.h"
#include "softhca/device/port.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/tree.h"

namespace softhca::device {
namespace {

PortPlan wanted_ports(std::uint64_t first_guid) noexcept {
    const Options& wanted = options();
    const PortKind kind = wanted.port == PortPolicy::kInfiniBand      ? PortKind::kInfiniBand
                          : wanted.device.has(DeviceTrait::kNoRoceV1) ? PortKind::kRoceV2
                                                                      : PortKind::kRoce;
    return {kind, first_guid, wanted.address != 0 ? wanted.address : default_address(first_guid),
            static_cast<unsigned>(wanted.devices), static_cast<unsigned>(wanted.ports)};
}

Fabric* g_fabric_storage = nullptr;
std::atomic<Fabric*> g_fabric{nullptr};
std::mutex*& fabric_mutex_pointer() {
    static std::mutex* mutex = new std::mutex;  // outlives every destructor
    return mutex;
}
std::mutex& fabric_mutex() { return *fabric_mutex_pointer(); }
bool g_refused = false;  // under fabric_mutex(): attaching has failed

// The lock on the directory itself, which guards joining and leaving.
class DirectoryLock {
public:
    explicit DirectoryLock(const std::string& directory, int how = LOCK_EX) noexcept
        : fd_(libc::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) {
        if (fd_ < 0) return;
        while (flock(fd_, how) != 0)
            if (errno != EINTR) {
                libc::close(fd_);
                fd_ = -1;
                return;
            }
    }
    ~DirectoryLock() {
        if (fd_ >= 0) libc::close(fd_);
    }
    bool held() const noexcept { return fd_ >= 0; }
    int fd() const noexcept { return fd_; }

private:
    int fd_;
};

bool locked_by_another(int fd, std::uint32_t slot, std::uint32_t count) noexcept {
    SOFTHCA_ASSERT(count > 0 && slot + count <= kMaxProcesses);
    struct flock lock = liveness_lock(slot, count);
    if (libc::fcntl(fd, F_OFD_GETLK, reinterpret_cast<long>(&lock)) != 0) return true;
    return lock.l_type != F_UNLCK;
}

bool is_own_segment(const struct stat& st) noexcept {
    return S_ISREG(st.st_mode) && st.st_uid == geteuid();
}

// Opens the segment, and creates it if necessary, with mode 0600 whatever the umask is. The caller
// holds the directory's lock. If the file lacks permissions of its owner, a process was killed
// while it created it, so they are set. A file that others may read is left alone.
int open_segment(const std::string& path) noexcept {
    constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    struct stat st {};
    const auto lacks = [&] {
        return is_own_segment(st) && (st.st_mode & 0177) == 0 && (st.st_mode & 0777) != 0600;
    };
    if (libc::lstat(path.c_str(), &st) == 0 && lacks()) chmod(path.c_str(), 0600);
    const int fd = libc::open(path.c_str(), kFlags, 0600);
    if (fd >= 0 && libc::fstat(fd, &st) == 0 && lacks()) libc::fchmod(fd, 0600);
    return fd;
}

int high_descriptor(int fd) noexcept {
    const int high = libc::fcntl(fd, F_DUPFD_CLOEXEC, 700);
    if (high < 0) return fd;
    libc::close(fd);
    return high;
}

// Process identifiers are valid within one PID namespace only.
struct PidNamespace {
    std::uint64_t device = 0, inode = 0;  // 0: there is no /proc
    bool operator==(const PidNamespace&) const = default;
};

PidNamespace own_pid_namespace() noexcept {
    struct stat st {};
    if (libc::stat("/proc/self/ns/pid", &st) != 0) return {};
    return {st.st_dev, st.st_ino};
}

}  // namespace

std::uint64_t now_ns() noexcept {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec);
}

Fabric* Fabric::current() noexcept { return g_fabric.load(std::memory_order_acquire); }

Fabric* Fabric::attach() noexcept {
    if (Fabric* fabric = current()) return fabric;
    return attach(options().fabric);
}

Fabric* Fabric::attach(const char* name) noexcept {
    if (Fabric* fabric = current()) return fabric;
    std::lock_guard<std::mutex> guard(fabric_mutex());
    if (Fabric* fabric = current()) return fabric;
    const int saved = errno;
    if (!g_fabric_storage) g_fabric_storage = new Fabric;
    if (g_fabric_storage->join(name)) {
        g_fabric.store(g_fabric_storage, std::memory_order_release);
        g_refused = false;
        g_fabric_storage->reclaim_dead();
        g_fabric_storage->wake_others();  // a process that was alone starts to watch for our death
    } else {
        g_refused = true;
    }
    errno = saved;
    return current();
}

bool Fabric::join(const char* name) noexcept {
    SOFTHCA_ASSERT(lock_fd_ < 0 && slot_ == kNone && !segment_);
    name_ = name;
    // When the last user of another fabric leaves, the directory may vanish between its creation
    // and the lock. So try again.
    for (int attempt = 0; attempt < 100; ++attempt) {
        directory_ = choose_fabric_directory(name);
        if (directory_.empty()) return false;
        segment_path_ = fabric_segment_path(directory_, name);
        tree_path_ = fabric_tree_path(directory_, name);
        DirectoryLock lock(directory_);
        if (!lock.held()) continue;
        // The lock may be on a directory that has been removed in the meantime.
        struct stat locked {
        }, now{};
        if (libc::fstat(lock.fd(), &locked) != 0 || libc::lstat(directory_.c_str(), &now) != 0 ||
            locked.st_ino != now.st_ino || locked.st_dev != now.st_dev)
            continue;
        if (open_locked()) return true;
        abandon();
        SOFTHCA_ASSERT(lock_fd_ < 0 && slot_ == kNone && !segment_);
        return false;
    }
    LOG_ERROR("cannot lock %s", directory_.c_str());
    return false;
}

// Undoes a join that failed half-way. The caller holds the directory's lock.
void Fabric::abandon() noexcept {
    if (lock_fd_ < 0) return;
    if (slot_ != kNone) segment_->processes[slot_].state.store(kFree, std::memory_order_release);
    slot_ = kNone;
    if (segment_) libc::munmap(segment_, sizeof(Segment));
    segment_ = nullptr;
    remove_if_last();
    libc::close(lock_fd_);
    lock_fd_ = -1;
    SOFTHCA_ASSERT(slot_ == kNone && !segment_);
}

void Fabric::remove_if_last() noexcept {
    if (locked_by_another(lock_fd_, 0, kMaxProcesses)) {
        if (!segment_) return;
        const std::uint32_t high = segment_->processes_high.load(std::memory_order_acquire);
        for (std::uint32_t slot = 0; slot < high && slot < kMaxProcesses; ++slot)
            if (slot != slot_ && locked_by_another(lock_fd_, slot, 1) &&
                !segment_->processes[slot].leaving.load(std::memory_order_acquire))
                return;
    }
    libc::unlink(segment_path_.c_str());
    remove_tree(tree_path_);
    rmdir(directory_.c_str());  // fails while other fabrics live in it, as it should
}

bool Fabric::open_locked() noexcept {
    SOFTHCA_ASSERT(lock_fd_ < 0 && !segment_);
    int fd = open_segment(segment_path_);
    if (fd < 0) {
        LOG_ERROR("cannot open the fabric %s: %s", segment_path_.c_str(), strerror(errno));
        return false;
    }
    fd = high_descriptor(fd);
    lock_fd_ = fd;
    struct stat st {};
    if (libc::fstat(fd, &st) != 0 || !is_own_segment(st) || (st.st_mode & 0777) != 0600) {
        LOG_ERROR("%s must be a regular file of user %u with mode 0600: not used",
                  segment_path_.c_str(), geteuid());
        libc::close(fd);
        lock_fd_ = -1;
        return false;
    }
    const bool alone = !locked_by_another(fd, 0, kMaxProcesses);
    if (alone) {  // no live process uses it: discard what dead processes left
        remove_tree(tree_path_);
        if (libc::ftruncate(fd, 0) != 0 ||
            libc::ftruncate(fd, static_cast<off_t>(sizeof(Segment))) != 0) {
            LOG_ERROR("cannot size the fabric %s: %s", segment_path_.c_str(), strerror(errno));
            return false;
        }
    } else if (st.st_size != static_cast<off_t>(sizeof(Segment))) {
        LOG_ERROR(
            "fabric %s is in use by another version of softhca; choose another name "
            "(SOFTHCA_FABRIC) or end its programs",
            name_.c_str());
        return false;
    }
    void* map = libc::mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED) {
        LOG_ERROR("cannot map the fabric %s (%zu MiB of address space): %s", segment_path_.c_str(),
                  sizeof(Segment) >> 20, strerror(errno));
        return false;
    }
    libc::madvise(map, sizeof(Segment), MADV_DONTFORK);
    segment_ = static_cast<Segment*>(map);
    const PidNamespace own = own_pid_namespace();
    if (alone) {
        segment_->pid_namespace_device = own.device;
        segment_->pid_namespace_inode = own.inode;
        segment_->version = kSegmentVersion;
        segment_->bytes_low = static_cast<std::uint32_t>(sizeof(Segment));
        segment_->created_ns = now_ns();
        segment_->clock_factor = measure_clock_factor();
        lay_out_ports(*segment_, wanted_ports(node_guid(name_, st.st_dev)));
        segment_->magic.store(kSegmentMagic, std::memory_order_release);
    } else if (segment_->magic.load(std::memory_order_acquire) != kSegmentMagic ||
               segment_->version != kSegmentVersion ||
               segment_->bytes_low != static_cast<std::uint32_t>(sizeof(Segment))) {
        LOG_ERROR("fabric %s is in use by another version of softhca", name_.c_str());
        return false;
    }
    const PidNamespace its{segment_->pid_namespace_device, segment_->pid_namespace_inode};
    if (its != own) {
        LOG_ERROR(
            "the processes of fabric %s are in PID namespace %llu, and this one is in %llu: they "
            "cannot copy each other's memory. Choose another name (SOFTHCA_FABRIC), or start all "
            "of them in one PID namespace (containers: --pid)",
            name_.c_str(), static_cast<unsigned long long>(its.inode),
            static_cast<unsigned long long>(own.inode));
        return false;
    }
    epoch::prepare(*segment_, alone);
    if (!take_slot()) return false;
    SOFTHCA_ASSERT(slot_ < kMaxProcesses && g_lock_owner != 0);
    if (alone) {
        if (const int error = write_tree(tree_path_, ports_of(*segment_))) {
            LOG_ERROR("cannot write the device tree %s: %s", tree_path_.c_str(), strerror(error));
            return false;  // abandon() removes what was written
        }
    }
    return true;
}

bool Fabric::take_slot() noexcept {
    SOFTHCA_ASSERT(segment_ && lock_fd_ >= 0 && slot_ == kNone);
    for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
        Process& process = segment_->processes[slot];
        if (process.state.load(std::memory_order_acquire) != kFree) continue;
        struct flock lock = liveness_lock(slot, 1);
        if (libc::fcntl(lock_fd_, F_OFD_SETLK, reinterpret_cast<long>(&lock)) != 0) continue;
        slot_ = slot;
        std::uint32_t generation = process.generation.load(std::memory_order_relaxed) + 1;
        if (lock_word(slot, generation) == 0) ++generation;
        process.pid = getpid();
        process.started_ns = now_ns();
        peers::make_cookie(process);
        process.arena_fd = memory::arena_open();
        process.arena_inode = memory::arena_inode();
        process.threads_high.store(0);
        process.shared_bytes.store(0);
        process.pinned_pages.store(0);
        process.bell.store(0);
        process.sleeping.store(0);
        process.leaving.store(0);
        process.attention.store(0);
        for (auto& epoch : process.epochs)
            epoch.value.store(0, std::memory_order_relaxed);
        memset(process.command, 0, sizeof process.command);
        const int fd = libc::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            const ssize_t n = libc::read(fd, process.command, sizeof process.command - 1);
            if (n > 0 && process.command[n - 1] == '\n') process.command[n - 1] = 0;
            libc::close(fd);
        }
        process.generation.store(generation, std::memory_order_release);
        g_lock_owner = lock_word(slot, generation);
        SOFTHCA_ASSERT(g_lock_owner != 0 && (g_lock_owner - 1) % kMaxProcesses == slot);
        if (segment_->processes_high.load() <= slot) segment_->processes_high.store(slot + 1);
        process.state.store(kLive, std::memory_order_release);
        if (process.arena_fd < 0) {
            LOG_DEBUG("cannot make shared memory for the device: %s", strerror(errno));
            return false;
        }
        return true;
    }
    LOG_ERROR(
        "fabric %s is full: it has %u processes; choose another name "
        "(SOFTHCA_FABRIC)",
        name_.c_str(), kMaxProcesses);
    return false;
}

void Fabric::wake_others() noexcept {
    const std::uint32_t high = segment_->processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < high && slot < kMaxProcesses; ++slot)
        if (slot != slot_ &&
            segment_->processes[slot].state.load(std::memory_order_acquire) == kLive)
            ring_bell(*this, slot);
}

bool Fabric::alive(std::uint32_t slot) noexcept {
    if (slot >= kMaxProcesses) return false;
    return slot == slot_ || locked_by_another(lock_fd_, slot, 1);
}

bool Fabric::alive(std::uint32_t slot, std::uint32_t generation) noexcept {
    if (slot >= kMaxProcesses) return false;
    if (segment_->processes[slot].generation.load(std::memory_order_acquire) != generation)
        return false;
    return alive(slot);
}

bool Fabric::going(std::uint32_t slot) noexcept {
    if (slot == slot_) return false;
    if (slot >= kMaxProcesses) return true;
    const Process& process = segment_->processes[slot];
    // The kernel takes memory and descriptors away before it releases the lock. At exit the process
    // state says so; at exec only the descriptors are gone.
    return process.state.load(std::memory_order_acquire) != kLive || !alive(slot) ||
           memory::is_ending(process.pid) ||
           !memory::arena_is_open(process.pid, process.arena_fd, process.arena_inode);
}

unsigned Fabric::reclaim_dead() noexcept {
    unsigned reclaimed = 0;
    const std::uint32_t high = segment_->processes_high.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < high && slot < kMaxProcesses; ++slot) {
        Process& process = segment_->processes[slot];
        if (process.state.load(std::memory_order_acquire) == kFree || alive(slot)) continue;
        // All survivors come here at the same time. One of them reclaims; the others look again
        // later.
        if (!segment_->process_lock.try_lock_briefly()) continue;
        if (process.state.load(std::memory_order_acquire) != kFree && !alive(slot)) {
            LOG_INFO("process %d (%.*s) is gone: reclaiming its objects", process.pid,
                     static_cast<int>(sizeof process.command), process.command);
            if (reclaim_process(*this, slot)) {
                process.state.store(kFree, std::memory_order_release);
                ++reclaimed;
            }
        }
        segment_->process_lock.unlock();
    }
    return reclaimed;
}

void Fabric::leave() noexcept {
    std::lock_guard<std::mutex> guard(fabric_mutex());
    if (!current()) return;
    SOFTHCA_ASSERT(current() == this && slot_ < kMaxProcesses && lock_fd_ >= 0);
    // Objects that the application left open are reclaimed like those of a dead process.
    bool reclaimed = false;
    if (segment_->process_lock.lock()) {
        reclaimed = reclaim_process(*this, slot_);
        segment_->process_lock.unlock();
    }
    reclaim_dead();
    wake_others();
    DirectoryLock lock(directory_);
    g_fabric.store(nullptr, std::memory_order_release);
    // A later attach() makes another object, because other threads may still use this one.
    SOFTHCA_ASSERT(g_fabric_storage == this);
    leave_behind(g_fabric_storage);
    g_fabric_storage = nullptr;
    // If something could not be freed now, the slot stays live without its lock, and a survivor
    // frees it.
    if (reclaimed) segment_->processes[slot_].state.store(kFree, std::memory_order_release);
    if (lock.held()) remove_if_last();
    // Closing is not enough: the mapping of the segment keeps the open file, and so its lock.
    struct flock mine = liveness_lock(slot_, 1);
    mine.l_type = F_UNLCK;
    libc::fcntl(lock_fd_, F_OFD_SETLK, reinterpret_cast<long>(&mine));
    libc::close(lock_fd_);
    lock_fd_ = -1;
}

void Fabric::leave_abruptly() noexcept {
    SOFTHCA_ASSERT(slot_ < kMaxProcesses);
    silence_qps(*this, slot_);
    // This must not wait for long: the thread that a signal interrupted may hold the directory's
    // lock itself.
    for (int attempt = 0; attempt < 100; ++attempt) {
        const DirectoryLock lock(directory_, LOCK_EX | LOCK_NB);
        if (lock.held()) {
            // This process's threads work until it is gone, so its slot stays locked.
            self().leaving.store(1, std::memory_order_release);
            remove_if_last();
            return;
        }
        const timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
    }
}

void Fabric::forget_after_fork() noexcept {
    leave_behind(fabric_mutex_pointer());
    fabric_mutex_pointer() = new std::mutex;  // another thread of the parent may hold the old one
    Fabric* fabric = g_fabric.exchange(nullptr);
    if (!fabric) return;
    libc::close(fabric->lock_fd_);  // the parent's lock stays, on the same open file description
    leave_behind(g_fabric_storage);
    g_fabric_storage = nullptr;  // not freed: another thread may have been using it at the fork
    g_lock_owner = 0xffffffffu;
}

}  // namespace softhca::device
