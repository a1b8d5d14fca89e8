// SPDX-License-Identifier: BSD-2-Clause
// The memory of a peer's process: see process_memory.h.
#include "protocol/shm/process_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <random>

#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"

namespace heddle::protocol {
namespace {

std::uint64_t random_word() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}
const std::uint64_t& word() {
    static const std::uint64_t value = random_word();
    return value;
}

std::uint64_t begin_of(const iovec& range) noexcept {
    return reinterpret_cast<std::uintptr_t>(range.iov_base);
}
std::uint64_t begin_of(const Segment& range) noexcept { return range.address; }

constexpr std::size_t kAlwaysWithWord = 256 << 10;  // bytes
constexpr auto kWordStaysFor = std::chrono::milliseconds(10);

// The word, and behind it some ranges of memory.
struct Vector {
    std::array<iovec, 1 + kMaxSegments> at;
    std::size_t count = 0;

    void add(std::uint64_t address, std::size_t bytes) noexcept {
        HEDDLE_ASSERT(count < at.size(), "messages and receives have few buffers");
        at[count++] = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes};
    }
    // [offset, offset + bytes) of these ranges.
    template <class Range>
    void add_part(std::span<const Range> ranges, std::size_t offset, std::size_t bytes) noexcept {
        const std::size_t lacking =
            for_each_part(ranges, offset, bytes,
                          [this](const Range& range, std::size_t skipped, std::size_t taken) {
                              add(begin_of(range) + skipped, taken);
                          });
        HEDDLE_ASSERT(lacking == 0, "both sides have as many bytes as are read");
    }
};

}  // namespace

struct ProcessMemory::Vectors {
    std::uint64_t seen = 0;
    Vector local, remote;
    // skipped: 1 leaves the word out.
    ssize_t read(std::uint32_t process, std::size_t skipped) const noexcept {
        return ::process_vm_readv(static_cast<pid_t>(process), local.at.data() + skipped,
                                  local.count - skipped, remote.at.data() + skipped,
                                  remote.count - skipped, 0);
    }
};

std::uint64_t ProcessMemory::own_word_address() noexcept {
    return reinterpret_cast<std::uintptr_t>(&word());
}
std::uint64_t ProcessMemory::own_word() noexcept { return word(); }

int ProcessMemory::probe() noexcept { return read({}, {}, 0, 0).error; }

ProcessMemory::Result ProcessMemory::read(std::span<const iovec> to, std::span<const Segment> from,
                                          std::size_t offset, std::size_t bytes) noexcept {
    Vectors vectors;
    vectors.local.add(reinterpret_cast<std::uintptr_t>(&vectors.seen), sizeof vectors.seen);
    vectors.remote.add(word_address_, sizeof vectors.seen);
    vectors.local.add_part(to, offset, bytes);
    vectors.remote.add_part(from, offset, bytes);
    if (bytes == 0 || bytes >= kAlwaysWithWord ||
        std::chrono::steady_clock::now() - seen_at_ > kWordStaysFor)
        return read_with_word(vectors, bytes);
    const ssize_t got = vectors.read(process_, 1);
    if (got < 0) return {0, errno};
    return is_closed() ? Result{0, ESRCH} : Result{static_cast<std::size_t>(got), 0};
}

// The sender closes the ring before it uses the memory again, so this is looked at after a read.
bool ProcessMemory::is_closed() const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return control_.constants.is_closed.load(std::memory_order_acquire) != 0;
}

ProcessMemory::Result ProcessMemory::read_with_word(Vectors& vectors, std::size_t bytes) noexcept {
    const ssize_t got = vectors.read(process_, 0);
    if (got < 0) return {0, errno == EFAULT ? ESRCH : errno};  // the word is not even there
    constexpr std::size_t kWord = sizeof vectors.seen;
    if (static_cast<std::size_t>(got) < kWord || vectors.seen != word_ || is_closed())
        return {0, ESRCH};
    seen_at_ = std::chrono::steady_clock::now();
    const std::size_t copied = static_cast<std::size_t>(got) - kWord;
    return {copied, copied == 0 && bytes != 0 ? EFAULT : 0};
}

}  // namespace heddle::protocol
