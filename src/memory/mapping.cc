// SPDX-License-Identifier: BSD-2-Clause
// linux/fs.h (PROCMAP_QUERY, Linux 6.11: one mapping in well under a microsecond), else the text of
// proc_pid_maps(5).
#include "memory/mapping.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "heddle/detail/assert.h"

namespace heddle::memory {
namespace {

// linux/fs.h, struct procmap_query; newer than some headers.
struct MappingQuery {
    std::uint64_t size;
    std::uint64_t query_flags;  // 0: the mapping that holds the address
    std::uint64_t query_address;
    std::uint64_t begin, end;
    std::uint64_t flags;
    std::uint64_t page_bytes;
    std::uint64_t offset;
    std::uint64_t inode;
    std::uint32_t device_major, device_minor;
    std::uint32_t name_bytes, build_id_bytes;
    std::uint64_t name, build_id;
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kQuery = _IOWR('f', 17, MappingQuery);
constexpr std::uint64_t kShared = 0x08;  // PROCMAP_QUERY_VMA_SHARED

// The file that the software HCA's pages have (src/softhca/device/memory/arena.cc). Its holes are
// only made where nothing is registered.
constexpr std::string_view kSoftwarePages = "/memfd:softhca-arena";

class File {
public:
    explicit File(const char* path) noexcept : number_(::open(path, O_RDONLY | O_CLOEXEC)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (number_ >= 0) ::close(number_);
    }
    int number() const noexcept { return number_; }

private:
    const int number_;
};

enum class Answer { kYes, kNo, kUnknown };

Answer by_query(std::uintptr_t begin, std::uintptr_t end) noexcept {
    const File maps("/proc/self/maps");
    if (maps.number() < 0) return Answer::kNo;
    for (std::uintptr_t at = begin; at < end;) {
        char name[256] = {};
        MappingQuery query{};
        query.size = sizeof query;
        query.query_address = at;
        query.name = reinterpret_cast<std::uintptr_t>(name);
        query.name_bytes = sizeof name;
        if (::ioctl(maps.number(), kQuery, &query) != 0)
            return errno == ENOTTY ? Answer::kUnknown : Answer::kNo;
        const bool private_anonymous = query.inode == 0 && query.device_major == 0 &&
                                       query.device_minor == 0 && (query.flags & kShared) == 0;
        if (!private_anonymous && !std::string_view(name).starts_with(kSoftwarePages))
            return Answer::kNo;
        HEDDLE_ASSERT(query.end > at, "a mapping that holds an address ends after it");
        at = query.end;
    }
    return Answer::kYes;
}

}  // namespace

namespace detail {

bool read_maps_line(const char* line, MapsLine* out) noexcept {
    std::uint64_t begin, end, inode;
    unsigned major, minor;
    char shared;
    int name = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*c%*c%*c%c %*x %x:%x %" SCNu64 " %n", &begin,
                    &end, &shared, &major, &minor, &inode, &name) != 6 ||
        name == 0)
        return false;
    *out = {begin, end, inode == 0 && major == 0 && minor == 0 && shared == 'p'};
    out->private_anonymous |= std::string_view(line + name).starts_with(kSoftwarePages);
    return true;
}

bool is_private_anonymous_by_text(std::uintptr_t begin, std::uintptr_t end) noexcept {
    const File maps("/proc/self/maps");
    if (maps.number() < 0) return false;
    // Mappings come in ascending order. If a line is longer than this, its end does not matter.
    char text[4096];
    std::size_t kept = 0;
    bool skipping = false;
    ssize_t got;
    while ((got = ::read(maps.number(), text + kept, sizeof text - 1 - kept)) > 0) {
        const std::size_t bytes = kept + static_cast<std::size_t>(got);
        HEDDLE_ASSERT(bytes < sizeof text, "the text has room for its terminator");
        text[bytes] = '\0';
        char* line = text;
        for (;;) {
            char* stop = static_cast<char*>(
                std::memchr(line, '\n', bytes - static_cast<std::size_t>(line - text)));
            const bool whole = stop != nullptr;
            if (!whole) {
                if (line != text || bytes < sizeof text - 1) break;
                stop = text + bytes;
            }
            *stop = '\0';
            MapsLine mapping;
            if (!skipping && read_maps_line(line, &mapping) && mapping.end > begin) {
                if (mapping.begin > begin || !mapping.private_anonymous) return false;
                if (mapping.end >= end) return true;
                begin = mapping.end;
            }
            skipping = !whole;
            line = whole ? stop + 1 : stop;
            if (!whole) break;
        }
        HEDDLE_ASSERT(line <= text + bytes, "a line begins within the bytes that were read");
        kept = bytes - static_cast<std::size_t>(line - text);
        HEDDLE_ASSERT(kept < sizeof text - 1, "a line that fills the text is read as two");
        std::memmove(text, line, kept);
    }
    return false;
}

}  // namespace detail

bool is_private_anonymous(std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (begin >= end) return false;  // the range goes beyond the end of all addresses
    const Answer answer = by_query(begin, end);
    if (answer != Answer::kUnknown) return answer == Answer::kYes;
    return detail::is_private_anonymous_by_text(begin, end);
}

}  // namespace heddle::memory
