// SPDX-License-Identifier: BSD-2-Clause
// Reads the advice of mappings: see advice.h. The text format is that of proc_pid_smaps(5).
#include "softhca/device/memory/advice.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"

namespace softhca::device::memory {

namespace {

std::atomic<std::uint64_t> g_noted{0};

constexpr std::string_view kFlags = "VmFlags:";

bool has_flag(std::string_view line, std::string_view flag) noexcept {
    SOFTHCA_DEBUG_ASSERT(!line.starts_with(flag));
    for (std::size_t at = line.find(flag); at != std::string_view::npos;
         at = line.find(flag, at + 1)) {
        const std::size_t end = at + flag.size();
        if (line[at - 1] == ' ' && (end == line.size() || line[end] == ' ')) return true;
    }
    return false;
}

}  // namespace

void note_advice(int advice) noexcept {
    if (advice == MADV_DONTDUMP || advice == MADV_WIPEONFORK)
        g_noted.fetch_add(1, std::memory_order_release);
}

void AdvisedPages::add(const Range& range) noexcept {
    SOFTHCA_ASSERT(range.start < range.end && count_ <= ranges_.size());
    if (count_ > 0 && ranges_[count_ - 1].end == range.start)
        ranges_[count_ - 1].end = range.end;
    else if (count_ < ranges_.size())
        ranges_[count_++] = range;
    else
        ranges_[count_ - 1].end = ~std::uint64_t{0};
}

void AdvisedPages::take_line(std::string_view line, Vma* vma) noexcept {
    if (!line.starts_with(kFlags)) {
        Vma next;
        if (parse_maps_line(line.data(), line.size(), &next)) *vma = next;
        return;
    }
    line.remove_prefix(kFlags.size());
    if (vma->plain() && (has_flag(line, "dd") || has_flag(line, "wf"))) add({vma->start, vma->end});
}

bool AdvisedPages::read() noexcept {
    count_ = 0;
    const int fd = libc::open("/proc/thread-self/smaps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    Vma vma{};
    // The buffer is longer than all lines except those with very long names, whose ends do not
    // matter.
    char buffer[4096];
    std::size_t kept = 0;   // bytes of a line whose end has not been read yet
    bool skipping = false;  // within the rest of a line that is longer than the buffer
    ssize_t got;
    while ((got = libc::read(fd, buffer + kept, sizeof buffer - kept)) > 0) {
        const std::string_view text(buffer, kept + static_cast<std::size_t>(got));
        std::size_t at = 0;
        for (std::size_t stop; (stop = text.find('\n', at)) != std::string_view::npos;
             at = stop + 1) {
            if (!skipping) take_line(text.substr(at, stop - at), &vma);
            skipping = false;
        }
        if (at == 0 && text.size() == sizeof buffer) {
            if (!skipping) take_line(text, &vma);
            skipping = true;
            at = text.size();
        }
        kept = text.size() - at;
        SOFTHCA_ASSERT(kept < sizeof buffer);
        std::memmove(buffer, buffer + at, kept);
    }
    libc::close(fd);
    return got == 0;
}

void AdvisedPages::refresh() noexcept {
    const std::uint64_t noted = g_noted.load(std::memory_order_acquire);
    if (noted == noted_ && count_ == 0) return;
    noted_ = noted;
    if (read()) return;
    LOG_WARN_ONCE("cannot read smaps: no more memory is shared, because its advice is unknown");
    ranges_[0] = {0, ~std::uint64_t{0}};
    count_ = 1;
}

bool AdvisedPages::meet(std::uint64_t start, std::uint64_t end) const noexcept {
    SOFTHCA_DEBUG_ASSERT(start < end && count_ <= ranges_.size());
    return std::any_of(ranges_.begin(), ranges_.begin() + count_, [start, end](const Range& range) {
        return start < range.end && range.start < end;
    });
}

}  // namespace softhca::device::memory
