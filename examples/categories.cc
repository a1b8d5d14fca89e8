// SPDX-License-Identifier: BSD-2-Clause
// Prints what four endpoints use of the device in each category, and with a sharing of one's own:
// Category, Sharing, Usage.
#include <heddle/endpoint.h>

#include <cstdio>
#include <string>

namespace {

constexpr std::uint32_t kThreads = 4;

void print(const std::string& name, const heddle::Usage& usage) {
    std::printf("%-16s %u contexts, %u QPs, %u CQs, %zu KiB", name.c_str(), usage.contexts,
                usage.qps, usage.cqs, usage.bytes >> 10);
    if (usage.uars)
        std::printf(", %u UAR pages, %u uUARs without a QP", *usage.uars, *usage.uuars_wasted());
    std::printf("\n");
}

}  // namespace

int main() {
    try {
        for (const heddle::Category category : heddle::kCategories) {
            const heddle::EndpointSet set("", category, kThreads);
            print(std::string(heddle::name(category)), set.usage());
        }
        heddle::Sharing sharing;  // two threads share a context, a PD and an MR; each has a QP
        sharing.context = sharing.pd = sharing.mr = 2;
        sharing.placement = heddle::Placement::kIndependent;
        const heddle::EndpointSet set("", sharing, kThreads);
        print("2-way contexts", set.usage());
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "categories: %s\n", error.what());
        return 1;
    }
    return 0;
}
