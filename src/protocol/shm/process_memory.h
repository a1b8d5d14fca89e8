// SPDX-License-Identifier: BSD-2-Clause
// The memory of a peer's process, read by the kernel (process_vm_readv(2)): one copy, from the
// sender's buffer to the receiver's. Users, namespaces, Yama and seccomp decide whether the kernel
// allows it, so the receiver tries it: each process has a word of random bits, and tells its peers
// the word's address and value.
//
// The kernel may give the number of a dead process to another one. So a read includes the word, and
// counts only if the word is right. That costs as much as 10 KiB of a message, so short reads leave
// it out for 10 ms after it was seen. The kernel gives numbers out in turn, and none comes again so
// soon.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "protocol/wire/shm_layout.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// Threads: the endpoint's.
class ProcessMemory {
public:
    // The word of this process.
    static std::uint64_t own_word_address() noexcept;
    static std::uint64_t own_word() noexcept;

    // The peer's process and word, as its ShmOpenBody says. control: of a ring that this process
    // reads and the peer's process has made; it must stay.
    ProcessMemory(std::uint32_t process, std::uint64_t word_address, std::uint64_t word,
                  const ShmControl& control) noexcept
        : process_(process), word_address_(word_address), word_(word), control_(control) {}

    // 0: the peer's memory can be read. Otherwise an errno: ESRCH if the process is another one.
    int probe() noexcept;

    struct Result {
        std::size_t bytes;  // have been copied, from the begin of what was asked for
        int error;          // 0, or an errno, and then `bytes` is 0
    };
    // Copies `bytes` bytes, not 0, from `offset` of the peer's segments to `offset` of the buffers.
    // Both sides have that many bytes. Fewer are copied if one of the peer's addresses is invalid
    // behind the first; EFAULT: none are. ESRCH: the process is gone, or its endpoint has closed
    // the ring, and may have used the memory for something else.
    Result read(std::span<const iovec> to, std::span<const Segment> from, std::size_t offset,
                std::size_t bytes) noexcept;

private:
    struct Vectors;
    Result read_with_word(Vectors& vectors, std::size_t bytes) noexcept;
    bool is_closed() const noexcept;

    const std::uint32_t process_;
    const std::uint64_t word_address_, word_;
    const ShmControl& control_;
    std::chrono::steady_clock::time_point seen_at_;  // the word, last
};

}  // namespace heddle::protocol
