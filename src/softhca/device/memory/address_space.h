// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says is mapped in this process: the PROCMAP_QUERY ioctl on /proc/self/maps
// (linux/fs.h, since 6.11; well under a microsecond), else the text of that file.
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
    // Plain memory of the application: what malloc(3) and anonymous mmap(2) give. (Huge pages and
    // device memory have files. The main stack looks the same: see main_stack().)
    bool plain() const noexcept {
        return inode == 0 && device == 0 && readable && writable && !executable && !shared;
    }
};

// Not thread-safe: callers hold the sharing mutex. Never uses the heap.
class AddressSpace {
public:
    enum class Source { kQuery, kText };

    // Can the kernel be asked at all?
    bool available() noexcept { return file() >= 0; }
    // The mapping that holds the address, or the next one above it. False when there is none.
    // Where only the text is to be had it is as of the last refresh().
    bool find(std::uint64_t address, Vma* out) noexcept;
    // The mapping that holds the address.
    bool at(std::uint64_t address, Vma* out) noexcept {
        return find(address, out) && out->start <= address;
    }
    // The next shared mapping of a file at or above the address.
    bool find_shared_file(std::uint64_t address, Vma* out) noexcept;
    // To be called whenever mappings other than those just looked at, or the process's descriptors,
    // may have changed.
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
    // The descriptor, looked after once between two refresh().
    int file() noexcept {
        if (!intact_) intact_ = maps_.get() >= 0;
        return maps_.number();
    }

    // Of the thread that opens it: the first one may be gone, and with it its view of the memory.
    ProcFile maps_{"/proc/thread-self/maps", 0};
    bool intact_ = false;
    bool query_works_ = true;
    // The text, parsed: ascending. In pages of its own.
    bool fresh_ = false;
    Vma* table_ = nullptr;
    std::size_t count_ = 0;
    std::size_t capacity_ = 0;
};

// Is this the stack of the main thread?
bool main_stack(const Vma& vma) noexcept;

// One line of /proc/PID/maps; false if it is none. For AddressSpace and its tests.
bool parse_maps_line(const char* line, std::size_t length, Vma* out) noexcept;

}  // namespace softhca::device::memory
