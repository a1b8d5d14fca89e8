// SPDX-License-Identifier: BSD-2-Clause
// Queries the mappings of this process: see address_space.h. The text format is that of
// proc_pid_maps(5).

#include "softhca/device/memory/address_space.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"

extern "C" void* __libc_stack_end;  // defined by ld.so: where the main stack began

namespace softhca::device::memory {

namespace {

// struct procmap_query of linux/fs.h, which distributions' headers lack so far.
struct ProcmapQuery {
    std::uint64_t size;
    std::uint64_t query_flags;
    std::uint64_t query_addr;
    std::uint64_t vma_start;
    std::uint64_t vma_end;
    std::uint64_t vma_flags;
    std::uint64_t vma_page_size;
    std::uint64_t vma_offset;
    std::uint64_t inode;
    std::uint32_t dev_major;
    std::uint32_t dev_minor;
    std::uint32_t vma_name_size;
    std::uint32_t build_id_size;
    std::uint64_t vma_name_addr;
    std::uint64_t build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kVmaReadable = 0x01;
constexpr std::uint64_t kVmaWritable = 0x02;
constexpr std::uint64_t kVmaExecutable = 0x04;
constexpr std::uint64_t kVmaShared = 0x08;
constexpr std::uint64_t kCoveringOrNext = 0x10;
constexpr std::uint64_t kFileBacked = 0x20;

// Reads numbers and single characters off a line.
class Scanner {
public:
    Scanner(const char* at, const char* end) noexcept : at_(at), end_(end) {
        SOFTHCA_DEBUG_ASSERT(at <= end);
    }

    bool number(unsigned base, std::uint64_t* out) noexcept {
        *out = 0;
        const char* first = at_;
        for (; at_ != end_; ++at_) {
            const char c = *at_;
            unsigned digit;
            if (c >= '0' && c <= '9')
                digit = static_cast<unsigned>(c - '0');
            else if (c >= 'a' && c <= 'f')
                digit = static_cast<unsigned>(c - 'a') + 10;
            else
                break;
            if (digit >= base) break;
            *out = *out * base + digit;
        }
        return at_ != first;
    }

    bool character(char expected) noexcept {
        if (at_ == end_ || *at_ != expected) return false;
        ++at_;
        return true;
    }

    // Reads a flag: its letter, or the letter for its absence.
    bool flag(char letter, char otherwise, bool* out) noexcept {
        *out = at_ != end_ && *at_ == letter;
        return character(*out ? letter : otherwise);
    }

private:
    const char* at_;
    const char* end_;
};

}  // namespace

int Vma::protection() const noexcept {
    return (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0) | (executable ? PROT_EXEC : 0);
}

bool parse_maps_line(const char* line, std::size_t length, Vma* out) noexcept {
    Scanner scan(line, line + length);
    std::uint64_t major, minor;
    if (!scan.number(16, &out->start) || !scan.character('-') || !scan.number(16, &out->end) ||
        !scan.character(' ') || !scan.flag('r', '-', &out->readable) ||
        !scan.flag('w', '-', &out->writable) || !scan.flag('x', '-', &out->executable) ||
        !scan.flag('s', 'p', &out->shared) || !scan.character(' ') ||
        !scan.number(16, &out->offset) || !scan.character(' ') || !scan.number(16, &major) ||
        !scan.character(':') || !scan.number(16, &minor) || !scan.character(' ') ||
        !scan.number(10, &out->inode))
        return false;
    out->device = makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor));
    return out->start < out->end;
}

int AddressSpace::query(int fd, std::uint64_t address, Wanted wanted, Vma* out) noexcept {
    ProcmapQuery query{};
    query.size = sizeof query;
    query.query_addr = address;
    query.query_flags = kCoveringOrNext;
    if (wanted == Wanted::kSharedFile) query.query_flags |= kFileBacked | kVmaShared;
    if (libc::ioctl(fd, kProcmapQuery, &query) != 0) return errno;
    *out = {.start = query.vma_start,
            .end = query.vma_end,
            .offset = query.vma_offset,
            .inode = query.inode,
            .device = makedev(query.dev_major, query.dev_minor),
            .readable = (query.vma_flags & kVmaReadable) != 0,
            .writable = (query.vma_flags & kVmaWritable) != 0,
            .executable = (query.vma_flags & kVmaExecutable) != 0,
            .shared = (query.vma_flags & kVmaShared) != 0};
    return 0;
}

bool AddressSpace::grow_table() noexcept {
    const std::size_t old_bytes = capacity_ * sizeof(Vma);
    const std::size_t bytes = old_bytes == 0 ? 64 << 10 : 2 * old_bytes;
    void* const at = old_bytes == 0 ? libc::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                    : libc::mremap(table_, old_bytes, bytes, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) return false;
    table_ = static_cast<Vma*>(at);
    capacity_ = bytes / sizeof(Vma);
    SOFTHCA_ASSERT(capacity_ > count_);
    return true;
}

// Parses the file into the table. If the table is full, sets *full and returns false.
bool AddressSpace::read_text(int fd, bool* full) noexcept {
    // The buffer is longer than the numbers of any line. The name behind them may be cut off.
    char buffer[8192];
    std::size_t kept = 0;   // bytes of a line whose end has not been read yet
    bool skipping = false;  // within the rest of a line that is longer than the buffer
    count_ = 0;
    for (off_t position = 0;;) {
        const ssize_t got = libc::pread(fd, buffer + kept, sizeof buffer - kept, position);
        if (got <= 0) return got == 0;
        position += got;
        const char* const end = buffer + kept + got;
        const char* line = buffer;
        while (line != end) {
            const auto* stop = static_cast<const char*>(
                std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
            const bool whole = line == buffer && end == buffer + sizeof buffer;
            if (!stop && !whole) break;
            const char* const after = stop ? stop : end;
            Vma vma;
            if (!skipping && parse_maps_line(line, static_cast<std::size_t>(after - line), &vma)) {
                *full = count_ == capacity_;
                if (*full) return false;
                SOFTHCA_ASSERT(count_ < capacity_);
                table_[count_++] = vma;
            }
            skipping = !stop;
            line = stop ? stop + 1 : end;
        }
        kept = static_cast<std::size_t>(end - line);
        SOFTHCA_ASSERT(kept < sizeof buffer);
        std::memmove(buffer, line, kept);
    }
}

bool AddressSpace::load(int fd) noexcept {
    if (capacity_ == 0 && !grow_table()) return false;
    // Growing the table changes the mappings, so the text is read again.
    bool full = false;
    while (!read_text(fd, &full))
        if (!full || !grow_table()) return false;
    fresh_ = true;
    return true;
}

bool AddressSpace::find(std::uint64_t address, Wanted wanted, Vma* out) noexcept {
    const int fd = file();
    if (fd < 0) return false;
    if (query_works_) {
        const int error = query(fd, address, wanted, out);
        if (error == 0) return true;
        if (error == ENOENT || error == ESRCH) return false;
        query_works_ = false;  // ENOTTY: an older kernel
    }
    if (!fresh_ && !load(fd)) return false;
    SOFTHCA_ASSERT(table_ != nullptr && count_ <= capacity_);
    const Vma* const first = table_;
    const Vma* const end = first + count_;
    const Vma* found = std::upper_bound(
        first, end, address, [](std::uint64_t at, const Vma& vma) { return at < vma.end; });
    while (found != end && wanted == Wanted::kSharedFile && (!found->shared || found->inode == 0))
        ++found;
    if (found == end) return false;
    *out = *found;
    return true;
}

bool AddressSpace::find(std::uint64_t address, Vma* out) noexcept {
    return find(address, Wanted::kAny, out);
}

bool AddressSpace::find_shared_file(std::uint64_t address, Vma* out) noexcept {
    return find(address, Wanted::kSharedFile, out);
}

bool main_stack(const Vma& vma) noexcept {
    const auto begin = reinterpret_cast<std::uint64_t>(__libc_stack_end);
    return vma.start <= begin && begin < vma.end;
}

}  // namespace softhca::device::memory
