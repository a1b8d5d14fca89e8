// SPDX-License-Identifier: BSD-2-Clause
// Shared memory of two processes: see segment.h.
#include "protocol/shm/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <new>
#include <random>
#include <system_error>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/shm/process_memory.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace heddle::protocol {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const char* what, int error) {
    throw std::system_error(error, std::generic_category(), what);
}

class Descriptor {
public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const noexcept { return fd_; }
    int release() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_;
};

int make_memfd() noexcept {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int fd = ::memfd_create("heddle-shm", kFlags | MFD_NOEXEC_SEAL);
    return fd >= 0 || errno != EINVAL ? fd : ::memfd_create("heddle-shm", kFlags);
}

// Beyond `ulimit -f` the kernel would end the process by SIGXFSZ.
bool may_be_as_long(std::size_t bytes) noexcept {
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

std::uint64_t random_nonce() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

// The file that the peer names, if it is one that can be a ring. A peer could name any file, so
// it is looked at before it is opened for reading and writing.
int open_peers(const ShmOpenBody& peers, std::size_t bytes) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%u/fd/%u", peers.process, peers.descriptor);
    const Descriptor seen(::open(path, O_PATH | O_CLOEXEC));
    if (seen.get() < 0) fail("the peer's shared memory cannot be opened", errno);
    struct stat file {};
    struct statfs system {};
    if (::fstat(seen.get(), &file) != 0 || ::fstatfs(seen.get(), &system) != 0)
        fail("the peer's shared memory", errno);
    if (!S_ISREG(file.st_mode) || file.st_nlink != 0 || file.st_uid != ::geteuid() ||
        system.f_type != TMPFS_MAGIC || file.st_size != static_cast<off_t>(bytes))
        fail("what the peer has is no shared memory of ours", EPROTO);
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", seen.get());
    Descriptor opened(::open(path, O_RDWR | O_CLOEXEC));
    if (opened.get() < 0) fail("the peer's shared memory cannot be opened", errno);
    // Its pages cannot be taken away then: no access ends with SIGBUS.
    if ((::fcntl(opened.get(), F_GET_SEALS) & kSeals) != kSeals)
        fail("the peer's shared memory can change its size", EPROTO);
    return opened.release();
}

}  // namespace

ShmSegment::ShmSegment(const ShmShape& shape) : shape_(shape) {
    HEDDLE_ASSERT(shape.is_possible(), "the caller chooses a possible shape");
    if (!may_be_as_long(shape.bytes())) fail("shared memory (ulimit -f)", EFBIG);
    Descriptor fd(make_memfd());
    if (fd.get() < 0) fail("shared memory (memfd_create)", errno);
    const auto bytes = static_cast<off_t>(shape.bytes());
    if (::ftruncate(fd.get(), bytes) != 0 || ::fallocate(fd.get(), 0, 0, bytes) != 0)
        fail("pages of shared memory", errno);
    if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail("seals of shared memory", errno);
    map(fd.get());
    fd_ = fd.release();
    ShmControl& control = *new (memory_) ShmControl;
    control.constants.nonce = random_nonce();
    control.constants.shape = shape;
}

ShmSegment::ShmSegment(const ShmOpenBody& peers) : shape_{peers.slots, peers.area_bytes} {
    HEDDLE_ASSERT(shape_.is_possible(), "parse() refuses another shape");
    const Descriptor fd(open_peers(peers, shape_.bytes()));
    map(fd.get());
    const ShmControl::Constants& is = control_of(memory_).constants;
    if (is.magic != ShmControl::kMagic || is.version != ShmControl::kVersion ||
        is.nonce != peers.nonce || is.shape != shape_) {
        ::munmap(memory_, shape_.bytes());
        fail("what the peer has is no ring of ours", EPROTO);
    }
}

// Not for the children of fork(), as these have not the peer's connection either.
void ShmSegment::map(int fd) {
    void* const memory = ::mmap(nullptr, shape_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("mapping shared memory", errno);
    ::madvise(memory, shape_.bytes(), MADV_DONTFORK);
    memory_ = static_cast<std::byte*>(memory);
}

ShmSegment::~ShmSegment() {
    ::munmap(memory_, shape_.bytes());
    close_descriptor();
}

ShmOpenBody ShmSegment::body() const noexcept {
    HEDDLE_ASSERT(fd_ >= 0, "a peer opens it by its descriptor");
    ShmOpenBody body;
    body.nonce = control_of(memory_).constants.nonce;
    body.word_address = ProcessMemory::own_word_address();
    body.word = ProcessMemory::own_word();
    body.process = static_cast<std::uint32_t>(::getpid());
    body.descriptor = static_cast<std::uint32_t>(fd_);
    body.slots = shape_.slots;
    body.area_bytes = shape_.area_bytes;
    return body;
}

ShmControl::Answer ShmSegment::answer() const noexcept {
    return static_cast<ShmControl::Answer>(
        control_of(memory_).state.answer.load(std::memory_order_acquire));
}

bool ShmSegment::must_sender_fence() const noexcept {
    return control_of(memory_).state.fences.load(std::memory_order_relaxed) != 0;
}

void ShmSegment::accept(bool can_read, bool can_fence) noexcept {
    ShmControl::State& state = control_of(memory_).state;
    state.reads.store(can_read ? 1 : 0, std::memory_order_relaxed);
    state.fences.store(can_fence ? 0 : 1, std::memory_order_relaxed);
    state.answer.store(ShmControl::kAccepted, std::memory_order_release);
}

void ShmSegment::refuse() noexcept {
    control_of(memory_).state.answer.store(ShmControl::kRefused, std::memory_order_release);
}

void ShmSegment::close_descriptor() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace heddle::protocol
