// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/uar_pages.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/device.h"
#include "heddle/usage.h"
#include "verbs/open_device.h"

namespace heddle {
namespace endpoint {
namespace {

// Offsets in the device file, in pages (kernel: drivers/infiniband/hw/mlx5/mlx5_ib.h). Bits 8 to 15
// are a command; the commands below map registers. Offsets from 9 << 16 on name objects.
constexpr std::uint64_t kFirstObject = 9ULL << 16;
constexpr std::uint64_t kRegularPage = 0, kWriteCombiningPage = 2, kAllocatedPage = 6;

bool is_register_page(std::uint64_t offset, std::uint64_t page) noexcept {
    const std::uint64_t number = offset / page;
    if (number >= kFirstObject) return true;
    const std::uint64_t command = number >> 8 & 0xff;
    return command == kRegularPage || command == kWriteCombiningPage || command == kAllocatedPage;
}

}  // namespace

bool is_uar_object(std::uint64_t offset) noexcept {
    return offset / static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) >= kFirstObject;
}

UarPages mapped_uar_pages() {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    HEDDLE_ASSERT(page != 0 && (page & (page - 1)) == 0);
    UarPages pages;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("uverbs") == std::string::npos) continue;
        std::uintptr_t start = 0, end = 0;
        std::uint64_t offset = 0;
        char rights[8] = {};
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64, &start, &end,
                        rights, &offset) != 4)
            continue;
        if (rights[1] != 'w' || rights[3] != 's') continue;    // the device clock, for example
        for (std::uintptr_t at = start; at < end; at += page)  // adjacent pages share a line
            if (is_register_page(offset + (at - start), page)) pages[at] = offset + (at - start);
    }
    return pages;
}

}  // namespace endpoint

std::optional<UarKernel> uar_kernel(const std::string& device) {
    if (!heddle::device(device).mlx5) return std::nullopt;
    const endpoint::UarPages before = endpoint::mapped_uar_pages();
    const verbs::Context context = verbs::open_device(device).context;
    for (const auto& [address, offset] : endpoint::mapped_uar_pages())
        if (!before.contains(address) && !endpoint::is_uar_object(offset))
            return UarKernel::kStatic;
    return UarKernel::kDynamic;
}

}  // namespace heddle
