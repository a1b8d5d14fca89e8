// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/uuar_threads.h"

#include <unistd.h>

#include <map>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

constexpr std::size_t kColumns = 60, kMostRanges = 4;  // of a line for people

class Grouping {
public:
    void add(std::uintptr_t key, std::uint32_t thread) {
        const auto [at, fresh] = index_.try_emplace(key, groups.size());
        if (fresh) groups.emplace_back();
        HEDDLE_ASSERT(at->second < groups.size() && index_.size() == groups.size(),
                      "each register has a group");
        std::vector<std::uint32_t>& group = groups[at->second];
        HEDDLE_ASSERT(group.empty() || group.back() <= thread, "threads come in their order");
        if (group.empty() || group.back() != thread) group.push_back(thread);
    }
    ThreadGroups groups;

private:
    std::map<std::uintptr_t, std::size_t> index_;
};

// "0-3, 8"
std::string ranges(const std::vector<std::uint32_t>& threads) {
    std::string text;
    std::size_t count = 0;
    for (std::size_t i = 0; i < threads.size(); ++count) {
        std::size_t end = i + 1;
        while (end < threads.size() && threads[end] == threads[end - 1] + 1)
            ++end;
        if (count == kMostRanges) return text + ", ...";
        text += (i == 0 ? "" : ", ") + std::to_string(threads[i]);
        if (end - i > 1) text += "-" + std::to_string(threads[end - 1]);
        i = end;
    }
    return text;
}

}  // namespace

std::optional<UuarThreads> uuar_threads(const EndpointSet& set) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    HEDDLE_ASSERT(page != 0 && (page & (page - 1)) == 0, "the mask of a page is one less");
    Grouping uuars, pages;
    for (std::uint32_t t = 0; t < set.size(); ++t)
        for (std::uint32_t k = 0; k < set[t].qps(); ++k) {
            const void* const uuar = set[t].uuar(k);
            if (uuar == nullptr) return std::nullopt;
            const auto address = reinterpret_cast<std::uintptr_t>(uuar);
            uuars.add(address, t);
            pages.add(address & ~(page - 1), t);
        }
    HEDDLE_ASSERT(uuars.groups.size() >= pages.groups.size(), "each page has one uUAR at least");
    return UuarThreads{std::move(uuars.groups), std::move(pages.groups)};
}

std::string text_of(const ThreadGroups& groups) {
    std::string text;
    std::size_t left_out = 0;
    for (const std::vector<std::uint32_t>& group : groups) {
        if (group.size() < 2) continue;
        if (text.size() < kColumns)
            text += (text.empty() ? "{" : " {") + ranges(group) + "}";
        else
            ++left_out;
    }
    if (left_out != 0) text += " and " + std::to_string(left_out) + " more";
    return text;
}

}  // namespace heddle::cli
