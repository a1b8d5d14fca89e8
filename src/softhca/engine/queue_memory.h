// SPDX-License-Identifier: BSD-2-Clause
// Access to driver-owned memory (queue buffers, doorbell records) of any process. It becomes shared
// when it is registered, so an access is a load or a store. A buffer that could not be shared is
// reached through the kernel. Another process has written what is read, so it may be anything.
#pragma once

#include <endian.h>
#include <string.h>
#include <sys/uio.h>

#include "softhca/device/memory/remote.h"
#include "softhca/device/own_memory.h"
#include "softhca/device/peers.h"

namespace softhca::engine {

// A pointer to [at, +length) of the queue memory, or nullptr if only the kernel can reach it.
inline std::byte* queue_pointer(device::Fabric& fabric, std::uint32_t process,
                                const device::QueueMemory& memory, std::uint64_t at,
                                std::uint64_t length) noexcept {
    if (at > memory.length || length > memory.length - at) return nullptr;
    if (memory.offset != device::kNotShared)
        return device::peers::at(fabric.segment(), process, memory.offset + at, length);
    if (process == fabric.slot() && device::own_memory::is_queue(memory.address + at, length))
        return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(memory.address + at));
    return nullptr;
}

// The same for memory that is stored and loaded by words of four bytes. It is nullptr, too, if the
// record, which another process may have overwritten, gives an address that is no multiple of four.
inline std::byte* queue_words(device::Fabric& fabric, std::uint32_t process,
                              const device::QueueMemory& memory, std::uint64_t at,
                              std::uint64_t length) noexcept {
    std::byte* const place = queue_pointer(fabric, process, memory, at, length);
    return (reinterpret_cast<std::uintptr_t>(place) & 3) == 0 ? place : nullptr;
}

// By which number the kernel reaches the queue memory of that process. False: not at all. Queues of
// this process have a pointer, or are not its queues.
inline bool by_kernel(device::Fabric& fabric, std::uint32_t process, pid_t* pid) noexcept {
    return process != fabric.slot() &&
           device::peers::verify(fabric, fabric.segment(), process, pid) == 0;
}

// The bytes of a WQE of that size, a power of two, and where the WQE of that index begins. Another
// process of the fabric may have changed the record that the shift comes from. So the result is
// defined for every shift, and the functions here bound it.
inline std::uint64_t entry_bytes(std::uint32_t shift) noexcept {
    return std::uint64_t{1} << (shift & 31);
}
inline std::uint64_t entry_at(std::uint32_t index, std::uint32_t shift) noexcept {
    return std::uint64_t{index} << (shift & 31);
}

inline bool queue_read(device::Fabric& fabric, std::uint32_t process,
                       const device::QueueMemory& memory, std::uint64_t at, void* to,
                       std::size_t length) noexcept {
    if (at > memory.length || length > memory.length - at || process >= device::kMaxProcesses)
        return false;
    if (const std::byte* from = queue_pointer(fabric, process, memory, at, length)) {
        memcpy(to, from, length);
        return true;
    }
    pid_t pid;
    if (!by_kernel(fabric, process, &pid)) return false;
    iovec local{to, length};
    iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory.address + at)), length};
    return device::memory::copy_from(pid, &local, 1, &remote, 1, length) == 0;
}

inline bool queue_write(device::Fabric& fabric, std::uint32_t process,
                        const device::QueueMemory& memory, std::uint64_t at, const void* from,
                        std::size_t length) noexcept {
    if (at > memory.length || length > memory.length - at || process >= device::kMaxProcesses)
        return false;
    if (std::byte* to = queue_pointer(fabric, process, memory, at, length)) {
        memcpy(to, from, length);
        return true;
    }
    pid_t pid;
    if (!by_kernel(fabric, process, &pid)) return false;
    iovec local{const_cast<void*>(from), length};
    iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory.address + at)), length};
    return device::memory::copy_to(pid, &local, 1, &remote, 1, length) == 0;
}

// The word of a doorbell record that counts posted receives.
inline constexpr unsigned kReceiveRecord = 0;

// One of the two 32-bit words of a doorbell record, in host order.
inline bool record_read(device::Fabric& fabric, std::uint32_t process,
                        const device::QueueMemory& record, unsigned word,
                        std::uint32_t* value) noexcept {
    if (std::byte* at = queue_words(fabric, process, record, word * 4u, 4)) {
        *value = be32toh(
            std::atomic_ref(*reinterpret_cast<std::uint32_t*>(at)).load(std::memory_order_acquire));
        return true;
    }
    std::uint32_t raw;
    if (!queue_read(fabric, process, record, word * 4u, &raw, 4)) return false;
    *value = be32toh(raw);
    return true;
}

inline void record_write(device::Fabric& fabric, std::uint32_t process,
                         const device::QueueMemory& record, unsigned word,
                         std::uint32_t value) noexcept {
    const std::uint32_t raw = htobe32(value);
    if (std::byte* at = queue_words(fabric, process, record, word * 4u, 4))
        std::atomic_ref(*reinterpret_cast<std::uint32_t*>(at))
            .store(raw, std::memory_order_release);
    else
        queue_write(fabric, process, record, word * 4u, &raw, 4);
}

}  // namespace softhca::engine
