// SPDX-License-Identifier: BSD-2-Clause
// The mappings of this process, as the kernel reports them: by the PROCMAP_QUERY ioctl on
// /proc/self/maps (linux/fs.h, since 6.11; well under a microsecond), or else by the text of that
// file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/device/memory/own_fds.h"

namespace softhca::device::memory {

struct Vma {
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t offset;  // in its file
    std::uint64_t inode;   // 0: no file (also the heap, stacks, and .bss beyond a file's pages)
    std::uint64_t device;  // st_dev of the file
    bool readable;
    bool writable;
    bool executable;
    bool shared;

    bool operator==(const Vma&) const = default;
    int protection() const noexcept;  // PROT_*
    // Plain memory of the application, as malloc(3) and anonymous mmap(2) return it. Huge pages and
    // device memory have files. The main stack looks the same: see main_stack().
    bool plain() const noexcept {
        return inode == 0 && device == 0 && readable && writable && !executable && !shared;
    }
};

// Not thread-safe. Never uses the heap.
class AddressSpace {
public:
    enum class Source { kQuery, kText };

    // Whether the kernel answers at all.
    bool available() noexcept { return file() >= 0; }
    // The mapping that holds the address, or the next one above it. Returns false if there is none.
    // If only the text is available, the answer is as of the last refresh().
    bool find(std::uint64_t address, Vma* out) noexcept;
    // The mapping that holds the address.
    bool at(std::uint64_t address, Vma* out) noexcept {
        return find(address, out) && out->start <= address;
    }
    // The next shared mapping of a file at or above the address.
    bool find_shared_file(std::uint64_t address, Vma* out) noexcept;
    // Call this whenever the process's descriptors may have changed, or mappings other than those
    // just looked at.
    void refresh() noexcept { fresh_ = intact_ = false; }

    int fd() const noexcept { return maps_.number(); }
    void close() noexcept {
        maps_.close();
        intact_ = false;
    }
    // For tests.
    void use(Source source) noexcept { query_works_ = source == Source::kQuery; }

private:
    enum class Wanted { kAny, kSharedFile };
    bool find(std::uint64_t address, Wanted wanted, Vma* out) noexcept;
    int query(int fd, std::uint64_t address, Wanted wanted, Vma* out) noexcept;
    bool load(int fd) noexcept;
    bool read_text(int fd, bool* full) noexcept;
    bool grow_table() noexcept;
    // The descriptor. It is checked once between two calls of refresh().
    int file() noexcept {
        if (!intact_) intact_ = maps_.get() >= 0;
        return maps_.number();
    }

    // The calling thread's file: the main thread may have ended, and its view of the memory with
    // it.
    ProcFile maps_{"/proc/thread-self/maps", 0};
    bool intact_ = false;
    bool query_works_ = true;
    // The parsed text, in ascending order. It lies in pages of its own.
    bool fresh_ = false;
    Vma* table_ = nullptr;
    std::size_t count_ = 0;
    std::size_t capacity_ = 0;
};

// Whether this is the stack of the main thread.
bool main_stack(const Vma& vma) noexcept;

// Parses one line of /proc/PID/maps. Returns false if it is not such a line. For AddressSpace and
// its tests.
bool parse_maps_line(const char* line, std::size_t length, Vma* out) noexcept;

}  // namespace softhca::device::memory
